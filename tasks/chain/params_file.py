"""Changes in ``params.yaml``, which keep everything else as a person wrote it, comments included."""

import io
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.tokens import CommentToken

from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.load import Changes, changed_params, put
from pipeline_lib.settings.mistakes import SettingsError
from pipeline_lib.storage import write_text

#: Places of comments in ruamel's list of those of a key: beside it, and between it and a value on lines of its own.
BESIDE, BETWEEN = 2, 3


class _Representer(RoundTripRepresenter):
    """Writes null as `null`; ruamel would leave it out."""


_Representer.add_representer(
    type(None), lambda representer, value: representer.represent_scalar("tag:yaml.org,2002:null", "null")
)


def change_settings(file: Path, wanted: Params) -> dict[str, tuple[Any, Any]]:
    """Write the settings that differ from ``wanted`` into ``params.yaml``; keep everything else, comments included.

    Returns (old, new) by key, for example ``train.learning_rate``.
    """
    present = load_params(file, file.parent / "conf").model_dump(mode="json")
    new = wanted.model_dump(mode="json")
    # A variant with other keys is written as a whole.
    changes = {key: value for key, (_, value) in _differences(present, new, lambda one, two: one.keys() == two.keys())}
    write_changes(file, changes, "this run")
    # Another section may change a default, as a pretrained policy does; what is wanted there is written, too.
    written = load_params(file, file.parent / "conf").model_dump(mode="json")
    if moved := {key: value for key, (_, value) in _differences(written, new)}:
        write_changes(file, moved, "this run")
    return dict(_differences(present, new))


def write_changes(file: Path, changes: Changes, who: str) -> dict[str, tuple[Any, Any]]:
    """Write changes into ``params.yaml`` as they were given: presets by name; keep everything else, comments included.

    Returns (old, new) of the settings that this changes, by key.

    Raises:
        SettingsError: a change is wrong, or ``params.yaml`` is; nothing is written.
    """
    conf = file.parent / "conf"
    new = changed_params(changes, file, conf, who).model_dump(mode="json")
    present = load_params(file, conf).model_dump(mode="json")
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = sys.maxsize  # no line is broken
    yaml.Representer = _Representer
    before = file.read_text(encoding="utf-8")
    try:
        content = yaml.load(before)
    except MarkedYAMLError as error:  # ruamel refuses a tab behind a value, which our own reader takes
        place = f"{file}, line {error.problem_mark.line + 1}" if error.problem_mark else str(file)
        raise SettingsError(f"{place}: {error.problem}; nothing was changed, correct this line by hand") from None
    text = io.StringIO()
    if content is None:  # comments alone, which ruamel would not keep
        content = {}
        text.write(before if not before or before.endswith("\n") else f"{before}\n")
    put(content, changes, who, partial(_replace, content))
    yaml.dump(content, text)
    if not _says(text.getvalue(), content):
        raise SettingsError(
            f"{file}: {who} changes {', '.join(changes)}, which would damage other lines of it; change it by hand"
        )
    write_text(file.resolve(), text.getvalue(), keep_mode=True)
    return dict(_differences(present, new))


def _replace(whole: Mapping[str, Any], inside: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Set a value inside of the file's content; comments beside and behind the old value stay.

    All but sections stand on the line of their key.  Comments that ruamel knows between key and value would then make a
    file that nobody can read.
    """
    old, is_section = inside.get(key), inside is whole and isinstance(value, Mapping)
    if isinstance(value, list | Mapping) and not is_section:
        value = CommentedSeq(value) if isinstance(value, list) else CommentedMap(value)
        value.fa.set_flow_style()
    below = "" if key in inside or inside is whole else _behind(inside, take=True)
    inside[key] = value
    if isinstance(inside, CommentedMap) and not is_section:
        places = inside.ca.items.get(key) or [None] * 4
        beside = places[BESIDE].value if places[BESIDE] else ""
        text = "".join([beside, *(token.value for token in places[BETWEEN] or ()), below, _behind(old)])
        places[BETWEEN] = None
        if text and text != beside:
            places[BESIDE] = CommentToken(text if beside or text.startswith("#") else f"\n{text}", CommentMark(0), None)
        inside.ca.items[key] = places


def _says(text: str, content: Any) -> bool:
    try:
        return bool(YAML(typ="safe").load(text) == content)
    except YAMLError:
        return False


def _behind(value: Any, take: bool = False) -> str:
    """Return the lines of comments behind a value on lines of its own: ruamel keeps them with its last entry.

    With ``take`` they are no longer there: another entry becomes the last one.
    """
    if not isinstance(value, CommentedMap | CommentedSeq) or not value or value.fa.flow_style():
        return ""
    last = len(value) - 1 if isinstance(value, CommentedSeq) else list(value)[-1]
    if isinstance(value[last], CommentedMap | CommentedSeq) and value[last] and not value[last].fa.flow_style():
        return _behind(value[last], take)
    found = ""
    for token in value.ca.items.get(last) or ():
        if isinstance(token, CommentToken):
            beside, _, behind = token.value.partition("\n")
            found += behind
            if take:
                token.value = f"{beside}\n"
    return found


def _differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    alike: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda old, new: True,
    prefix: str = "",
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield what differs by dotted key; two mappings that are not ``alike`` differ as a whole."""
    for key in (*old, *(key for key in new if key not in old)):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping) and alike(before, after):
            yield from _differences(before, after, alike, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", (before, after)
