"""What is behind an error."""

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it was raised from, or while what was handled, and so on."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
