"""Between texts and a checkpoint's tokens: its tokenizer, and the template that prompts are put into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_redline.errors import OutcomesError
from pytest_redline.paths import display
from redline_engine.models.surface import broken_link, tokenizer_remedy
from redline_engine.templates import TEMPLATES

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Tokenizing:
    """The tokenizer of a directory, with a template's name or None.

    Raises
    ------
    OutcomesError
        ``tokenizer.json`` is missing, cannot be read, or does not know the template's control tokens as its own.
    """

    def __init__(self, directory: Path, template: str | None) -> None:
        from tokenizers import Tokenizer

        path = directory / "tokenizer.json"
        if not path.is_symlink() and not path.exists():
            raise OutcomesError(
                f"{display(path)}: no such file, so prompts and replies cannot be read; {tokenizer_remedy(directory)}"
            )
        if fault := broken_link(path):
            raise OutcomesError(f"{display(path)}: {fault}")
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the tokenizers library raises bare exceptions
            raise OutcomesError(f"{display(path)}: cannot be read ({error}); download it again") from None
        self._template = TEMPLATES[template or "none"]
        unknown = [token for token in self._template.tokens if self._tokenizer.token_to_id(token) is None]
        if unknown:
            raise OutcomesError(
                f"{display(path)}: has no token {' and no '.join(unknown)}, which template {template} needs; "
                "name another template, or none"
            )

    def encode_all(self, prompts: Mapping[str, str]) -> dict[str, list[int]]:
        """Tokens of prompts by id.

        Raises
        ------
        OutcomesError
            A prompt holds a control token of the template: it would end its own turn.
        """
        held = {name: token for name, text in prompts.items() for token in self._template.tokens if token in text}
        if held:
            raise OutcomesError(
                [
                    f"prompt {name}: holds {token}, a control token of template {self._template.name}; where prompts "
                    "bring their own turns, say template: none"
                    for name, token in held.items()
                ]
            )
        return {name: self.encode(text) for name, text in prompts.items()}

    def encode(self, prompt: str) -> list[int]:
        """Tokens of a prompt in its template; the tokenizer's own additions only where there is no template."""
        text = self._template.render(prompt)
        return list(self._tokenizer.encode(text, add_special_tokens=not self._template.tokens).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a reply, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))
