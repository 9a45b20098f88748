"""The team's Jinja2 environment, within bounds: nothing in it reaches into objects or grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import pass_context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import _PassArg

from cutover.prompts.bounds import OPERATORS, TEXT_AT_MOST, TooLarge, computed

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

_WIDTHS = frozenset({"center", "indent", "ljust", "rjust", "wordwrap", "batch", "slice"})
_MULTIPLIED = frozenset({"replace", "join", "indent"})
WIDTH_AT_MOST = 1_000


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment that computes nothing when it compiles, and little when it renders."""

    # With every operator intercepted, none is computed while a template is compiled: not in
    # branches either that never run.
    intercepted_binops = OPERATORS

    def call_binop(
        self,
        context: Context,
        operator: str,
        left: Any,
        right: Any,
    ) -> Any:
        """Compute an operator; raises `TooLarge`."""
        del context
        return computed(operator, left, right)


def at_run_time(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter that is not called while a template is compiled, nor with a huge width."""

    @pass_context
    def late(context: Context, *args: object, **options: object) -> object:
        if _PassArg.from_obj(function) is _PassArg.context:
            return function(context, *args, **options)
        return folded(name, function, context.eval_ctx, args, options)

    return late


def folded(
    name: str,
    function: Callable[..., Any],
    ctx: EvalContext,
    args: tuple[object, ...],
    options: dict[str, object],
) -> object:
    """Call a filter that needs no context; raises `TooLarge` for a huge width."""
    refuse_width(name, args, options)
    match _PassArg.from_obj(function):
        case _PassArg.eval_context:
            return function(ctx, *args, **options)
        case _PassArg.environment:
            return function(ctx.environment, *args, **options)
        case _:
            return function(*args, **options)


def refuse_width(name: str, args: tuple[object, ...], options: dict[str, object]) -> None:
    """Raise `TooLarge` for what would be padded, or repeated, out of all bounds."""
    numbers = [item for item in (*args[1:], *options.values()) if isinstance(item, int)]
    texts = [item for item in (*args, *options.values()) if isinstance(item, str)]
    wide = name in _WIDTHS and any(number > WIDTH_AT_MOST for number in numbers)
    if wide or name == "format" or (name in _MULTIPLIED and _product(texts) > TEXT_AT_MOST):
        what = f"filter {name}"
        raise TooLarge(what)


def _product(texts: list[str]) -> int:
    """Give what the two longest texts make, one in each place of the other."""
    longest = sorted(map(len, texts), reverse=True)
    return (longest[0] + 1) * (longest[1] + 1) if len(longest) > 1 else 0
