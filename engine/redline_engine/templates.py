r"""How a text prompt is put to a chat model: which turns stand around it, and what it is asked to end its answer with.

========================  =================================================================================
``none``                  the prompt as it is
``sdar-chat``             one user turn in ChatML, the assistant's turn opened
``sdar-math``             the same, asking for steps and the final answer in ``\boxed{}``
``llada2-chat``           a system turn that switches thinking off, one human turn, the assistant's turn opened
``llada2-math``           the same, asking for steps and the final answer in ``\boxed{}``
========================  =================================================================================

Standard library only, as `config` is.

Source: the structure of turns is that of the chat templates of SDAR-Chat (Qwen's ChatML) and of LLaDA2; the wording of
the request is this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_MATH = "\nReason step by step, then give the final answer inside \\boxed{}."


class Template(NamedTuple):
    """Texts around a prompt; `tokens` are control tokens that the tokenizer must know and a prompt must not hold."""

    name: str
    before: str
    after: str
    tokens: tuple[str, ...]

    def render(self, prompt: str) -> str:
        """Put the texts around a prompt."""
        return self.before + prompt + self.after


_CHATML = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
_ROLES = (
    "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>",
    "<|role_end|><role>ASSISTANT</role>",
)

TEMPLATES: Mapping[str, Template] = {
    each.name: each
    for each in (
        Template("none", "", "", ()),
        Template("sdar-chat", *_CHATML, ("<|im_start|>", "<|im_end|>")),
        Template("sdar-math", _CHATML[0], _MATH + _CHATML[1], ("<|im_start|>", "<|im_end|>")),
        Template("llada2-chat", *_ROLES, ("<role>", "</role>", "<|role_end|>")),
        Template("llada2-math", _ROLES[0], _MATH + _ROLES[1], ("<role>", "</role>", "<|role_end|>")),
    )
}
