"""Changes in ``params.yaml``, which keep everything else as a person wrote it, comments included."""

import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.load import Changes, changed_params, put
from pipeline_lib.settings.mistakes import SettingsError
from pipeline_lib.storage import write_text

#: Places of comments in ruamel's list of those of a key: beside it, and between it and a value on lines of its own.
BESIDE, BETWEEN = 2, 3
#: With which some editors begin a file of UTF-8.
BOM = "\ufeff"


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
    written = file.read_bytes().decode()
    mark, before = written[: written.startswith(BOM)], written.removeprefix(BOM)
    content, anew = _round_trip(file, before, changes, who)
    kept = _comments(before, changes)
    texts = (one for one in (_spliced(before, changes), anew) if one is not None)
    text = next((one for one in texts if _says(one, content) and kept <= _comments(one, ())), None)
    if text is None:
        raise SettingsError(
            f"{file}: {who} changes {', '.join(changes)}, which would damage other lines of it; change it by hand"
        )
    write_text(file.resolve(), mark + text, keep_mode=True)
    return dict(_differences(present, new))


def _spliced(text: str, changes: Changes) -> str | None:
    """Return the text with the values of keys replaced that stand on it; None where one of them stands on no line."""
    nodes = {key: _node(text, key) for key in changes}
    for key, node in sorted(nodes.items(), key=lambda item: -item[1].start_mark.index if item[1] else 0):
        if node is None or node.end_mark.line > node.start_mark.line or node.start_mark.index == node.end_mark.index:
            return None
        value = io.StringIO()
        _yaml().dump(_in_a_line([changes[key]]), value)
        text = text[: node.start_mark.index] + value.getvalue().strip()[1:-1] + text[node.end_mark.index :]
    return text


def _node(text: str, key: str) -> Node | None:
    """Return the value of a dotted key, with its place; None if there is no such key."""
    node = YAML(typ="safe", pure=True).compose(text)
    for part in key.split("."):
        if not isinstance(node, MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == part), None)
    return node


def _comments(text: str, changes: Iterable[str]) -> Counter[str]:
    """Return the comments, but for those inside of values that are changed."""
    for first, end in [(node.start_mark.index, node.end_mark.index) for key in changes if (node := _node(text, key))]:
        text = text[:first] + " " * (end - first) + text[end:]
    return Counter(found.group().strip() for line in text.splitlines() for found in re.finditer(r"(?:^|\s)#.*", line))


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = sys.maxsize  # no line is broken
    yaml.Representer = _Representer
    return yaml


def _round_trip(file: Path, before: str, changes: Changes, who: str) -> tuple[Any, str]:
    """Return the changed content of the file, and the text in which ruamel writes it."""
    yaml, ends = _yaml(), "\r\n" if "\r\n" in before else "\n"
    before = before.replace("\r\n", "\n")
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
    return content, text.getvalue().replace("\n", ends)


def _replace(whole: Mapping[str, Any], inside: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Set a value inside of the file's content; comments beside and behind the old value stay.

    All but sections stand on the line of their key.  Comments that ruamel knows between key and value would then make a
    file that nobody can read.
    """
    old, is_section = inside.get(key), inside is whole and isinstance(value, Mapping)
    if not is_section:
        value = _in_a_line(value)
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


def _in_a_line(value: Any) -> Any:
    """Return a value of which ruamel writes the collections on one line, such that all readers of YAML take it."""
    if isinstance(value, str) and ":" in value:
        return DoubleQuotedScalarString(value)
    if not isinstance(value, list | Mapping):
        return value
    found = (
        CommentedSeq(map(_in_a_line, value))
        if isinstance(value, list)
        else CommentedMap({key: _in_a_line(part) for key, part in value.items()})
    )
    found.fa.set_flow_style()
    return found


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
