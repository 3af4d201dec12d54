"""Conditional execution: convert functions, so that ``if``, ``and``, ``or`` and ``not`` on nodes become parts of the graph.

AutoGraph (the package diastatic-malt, module `malt`) rewrites the syntax tree of a function. It finds the variables that
a statement assigns, lowers ``return``, ``continue`` and ``break``, and replaces each construct by a call of a function of
this module: converted code knows the module as ``ag__``. Conditions that are not nodes act as in plain Python.

Each function is converted when converted code calls it. Functions defined inside it stay as they are until then, so
callbacks of sources and operators are never converted. Converted code keeps the user's file and line numbers, so
tracebacks and debuggers show the user's lines.

Source: https://docs.nvidia.com/deeplearning/dali/user-guide/docs/advanced_topics_conditionals.html, and DALI 1.53.
"""

from __future__ import annotations
import __future__ as future

import ast
import copy
import functools
import inspect
import itertools
import linecache
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from malt.core.converter import STANDARD_OPTIONS as STD
from malt.core.converter import ConversionOptions, Feature, ProgramContext
from malt.impl.api import PyToPy
from malt.operators import (
    FunctionScope,
    Undefined,
    UndefinedReturnValue,
    for_stmt,
    ld,
    ldu,
    while_stmt,
    with_function_scope,
)
from malt.operators.py_builtins import (
    eval_in_original_context,
    globals_in_original_context,
    locals_in_original_context,
    super_in_original_context,
)
from malt.pyct import anno
from malt.pyct.inspect_utils import getnamespace
from malt.pyct.naming import Namer
from malt.pyct.origin_info import Location, OriginInfo
from malt.pyct.transformer import Context, EntityInfo

from dali_like.common.articles import kind_of
from dali_like.common.notices import warn
from dali_like.errors import ArgumentClashError, ArgumentTypeError, DefinitionError
from dali_like.graph.language.branches import condition, in_branch, merge, merge_values
from dali_like.graph.language.nodes import DataNode, output_nodes
from dali_like.pipeline.definition import UNCONVERTED

# The names that converted code uses.
__all__ = [
    "STD",
    "ConversionOptions",
    "Feature",
    "FunctionScope",
    "Undefined",
    "UndefinedReturnValue",
    "and_",
    "autograph_artifact",
    "converted_call",
    "for_stmt",
    "if_exp",
    "if_stmt",
    "ld",
    "ldu",
    "not_",
    "or_",
    "while_stmt",
    "with_function_scope",
]

_Function: TypeAlias = ast.FunctionDef | ast.Lambda
#: Flags of code compiled after ``from __future__ import ...``.
_FUTURE_FLAGS = functools.reduce(int.__or__, [getattr(future, name).compiler_flag for name in future.all_feature_names])
#: Packages whose functions are never converted, besides the standard library: they know nothing of nodes.
_PLAIN_PACKAGES = {"dali_like", "malt", "numpy", "scipy", "pandas", "PIL", "cv2", "matplotlib", "torch", "jax"}
#: A global variable by which modules of these packages ask for conversion: they are written with conditions on nodes.
_ASKS = "CONVERT_CONDITIONALS"
#: Functions that look at the frame of their caller.
_FRAME_READERS = (super, eval, globals, locals)
#: Functions that call their first argument.
_HIGHER_ORDER = (map, filter, functools.reduce, itertools.starmap)
_OPTIONS = ConversionOptions(recursive=True, user_requested=False, optional_features=None)


def converted_call(
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    caller: Any = None,
    options: Any = None,
) -> Any:
    """Call a function, after converting it if it is the user's. Converted code calls all functions like this."""
    kwargs = kwargs or {}
    if isinstance(function, functools.partial):
        return converted_call(function.func, (*function.args, *args), {**function.keywords, **kwargs}, caller)
    if caller is not None and any(function is each for each in _FRAME_READERS):
        return _call_in_frame(function, args, caller)
    if (plain := _plain_function(function)) is None:
        if args and any(function is each for each in _HIGHER_ORDER) and _plain_function(args[0]) is not None:
            args = (_caller_of(args[0]), *args[1:])
        return function(*args, **kwargs)
    if plain is not function:  # a method, or an object with __call__
        args = (getattr(function, "__self__", function), *args)
    return _converted(plain)(*args, **kwargs)


def _caller_of(function: Any) -> Callable[..., Any]:
    return lambda *args: converted_call(function, args)


def _call_in_frame(function: Any, args: Sequence[Any], caller: Any) -> Any:
    """Call one of `_FRAME_READERS`."""
    if function is super:
        return super_in_original_context(function, args, caller)
    if function is eval:
        return eval_in_original_context(function, args, caller)
    return globals_in_original_context(caller) if function is globals else locals_in_original_context(caller)


def _plain_function(called: Any) -> FunctionType | None:
    """Return the Python function behind a callable; None if it should not be converted."""
    if isinstance(called, type) or getattr(called, UNCONVERTED, False):
        return None
    method = called if isinstance(called, (FunctionType, MethodType)) else getattr(type(called), "__call__", None)  # noqa: B004
    plain = method.__func__ if isinstance(method, MethodType) else method
    if not isinstance(plain, FunctionType) or getattr(plain, UNCONVERTED, False):
        return None
    package = str(plain.__globals__.get("__name__", "")).partition(".")[0]
    is_plain = package in _PLAIN_PACKAGES or package in sys.stdlib_module_names - {"__main__"}
    if is_plain and not plain.__globals__.get(_ASKS, False):
        return None
    code = plain.__code__
    is_simple = not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    # Methods that the standard library generates, as for named tuples, have no source.
    return plain if is_simple and code.co_filename != "<string>" else None


# Statements and expressions


def if_stmt(
    test: Any,
    body: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    names: Sequence[str],
    num_outputs: int,
) -> None:
    """Execute ``if``. On a node, define both branches and merge the variables that are read later.

    Args:
        test: the condition.
        body, orelse: the branches.
        get_state, set_state: read and write the variables that the branches assign.
        names: of these variables.
        num_outputs: the number of variables that are read later; they are the first ones.

    Raises:
        ArgumentClashError: one branch does not assign a variable that is read later.
        ArgumentTypeError: the branches assign values of different structures.
    """
    if not isinstance(test, DataNode):
        (body if test else orelse)()
        return
    where = _where()
    predicate = condition(test, expression="if", where=where)
    names = ["return value" if name.startswith("retval_") else name for name in names]
    before = get_state()

    def define(block: Callable[[], None], branch: str) -> tuple[Any, ...]:
        set_state(before)
        block()
        outputs = get_state()[:num_outputs]
        for name, value in zip(names, outputs, strict=False):
            _check_assigned(name, value, branch, where)
        return outputs

    one = in_branch(predicate, True, functools.partial(define, body, "if"))
    other = in_branch(predicate, False, functools.partial(define, orelse, "else"))
    merged = [
        merge_values(predicate, *values, name=name, where=where)
        for name, *values in zip(names[:num_outputs], one, other, strict=True)
    ]
    set_state((*merged, *before[num_outputs:]))


def _check_assigned(name: str, value: Any, branch: str, where: str) -> None:
    if isinstance(value, UndefinedReturnValue):
        raise ArgumentClashError(
            f"`if` in {where}: the `{branch}` branch must also have a return statement, because the other branch returns a "
            "value"
        )
    if isinstance(value, Undefined):
        raise ArgumentClashError(
            f"`if` in {where}: variable '{name}' must also be initialized in the `{branch}` branch, because it is read "
            "after the conditional. Assign it before the conditional, or in both branches"
        )


def if_exp(test: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], _: str) -> Any:
    """Evaluate ``a if test else b``."""
    if not isinstance(test, DataNode):
        return if_true() if test else if_false()
    where = _where()
    predicate = condition(test, expression="if", where=where)
    values = in_branch(predicate, True, if_true), in_branch(predicate, False, if_false)
    return merge_values(predicate, *values, name="value", where=where)


def and_(left: Callable[[], Any], right: Callable[[], Any]) -> Any:
    """Evaluate ``left and right``. The right operand is computed for the samples whose left operand is true."""
    if not isinstance(value := left(), DataNode):
        return value and right()
    predicate, other, where = _logical("and", value, right)
    return merge(predicate, other, predicate, variable=f"`and` in {where}")


def or_(left: Callable[[], Any], right: Callable[[], Any]) -> Any:
    """Evaluate ``left or right``. The right operand is computed for the samples whose left operand is false."""
    if not isinstance(value := left(), DataNode):
        return value or right()
    predicate, other, where = _logical("or", value, right)
    return merge(predicate, predicate, other, variable=f"`or` in {where}")


def _logical(expression: str, left: DataNode, right: Callable[[], Any]) -> tuple[DataNode, DataNode, str]:
    where = _where()
    predicate = condition(left, expression=expression, where=where)

    def evaluate() -> DataNode:
        value = right()
        try:
            (node,) = output_nodes([value])
        except DefinitionError:
            raise ArgumentTypeError(
                f"`{expression}` in {where}: the right operand is {kind_of(value)}; operands are DataNodes or "
                "Booleans: compare the value"
            ) from None
        return condition(node, expression=expression, where=where)

    return predicate, in_branch(predicate, expression == "and", evaluate), where


def not_(value: Any) -> Any:
    """Evaluate ``not value``."""
    return condition(value, expression="not", where=_where()) if isinstance(value, DataNode) else not value


def autograph_artifact(function: Any) -> Any:
    """Return a function defined inside a converted function."""
    return function


def _where() -> str:
    """Return file and line of the code that is being executed."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("dali_like", "malt"):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# Conversion


class _FactoryCode(NamedTuple):
    """Code that makes a converted function, given `ag__`, with the variables of the function's closure around it."""

    code: CodeType

    def make(self, function: FunctionType) -> FunctionType:
        """Return the converted function with globals, closure and defaults of the original."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in self.code.co_freevars)
        make = FunctionType(self.code, function.__globals__, self.code.co_name, (), closure)
        converted: FunctionType = make(sys.modules[__name__])
        converted.__code__ = converted.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
        converted.__defaults__ = function.__defaults__
        converted.__kwdefaults__ = function.__kwdefaults__
        return converted


#: By the code of the original function. None for code that cannot be converted.
_factories: WeakKeyDictionary[CodeType, _FactoryCode | None] = WeakKeyDictionary()


def _converted(function: FunctionType) -> FunctionType:
    """Return the converted function, or the function itself with a warning."""
    if function.__code__ not in _factories:
        try:
            _factories[function.__code__] = _make_factory(function)
        except Exception as error:  # of many kinds: the source is missing, or has unsupported syntax
            _factories[function.__code__] = None
            warn(
                f"{function.__qualname__} runs without conversion for conditional execution: {error}. If it has no "
                "conditions on DataNodes, decorate it with do_not_convert",
                UserWarning,
            )
    factory = _factories[function.__code__]
    return function if factory is None else factory.make(function)


def _make_factory(function: FunctionType) -> _FactoryCode:
    transpiler = _Transpiler()
    definition, name = transpiler.transform_function(function, ProgramContext(options=_OPTIONS))
    if isinstance(definition, ast.Lambda):
        definition = ast.Assign([ast.Name(name, ast.Store())], definition)
    else:
        definition.name = name
    _locate(definition, function.__code__.co_firstlineno, transpiler.inner.values())
    variables = "".join(f"  {variable} = None\n" for variable in function.__code__.co_freevars)
    module = ast.parse(f"def outer():\n{variables}  def factory(ag__):\n    return {name}\n  return factory")
    outer: Any = module.body[0]
    outer.body[-2].body.insert(0, definition)
    flags = function.__code__.co_flags & _FUTURE_FLAGS
    code = compile(module, function.__code__.co_filename, "exec", flags, dont_inherit=True)
    for part in ("outer", "factory"):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return _FactoryCode(code)


class _Transpiler(PyToPy):
    """AutoGraph without its parser, which confuses lambdas, and its loader, which writes files and loses line numbers.

    Attributes:
        inner: the functions defined inside the converted function, by name and place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner: dict[Any, _Function] = {}

    def transform_function(self, function: FunctionType, user: Any) -> tuple[Any, str]:
        """Return the converted definition, and a name for it that the function does not use."""
        node = _definition_of(function)
        namespace = getnamespace(function)
        namer = Namer(namespace)
        name = namer.new_symbol(self.get_transformed_name(node), ())
        context = Context(EntityInfo(name, "", function.__code__.co_filename, (), namespace), namer, user)
        return self.transform_ast(self._erase_arg_defaults(node), context), name

    def transform_ast(self, node: _Function, context: Any) -> Any:
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        self.inner = {_place_of(each): copy.deepcopy(each) for each in _functions_in(node) if each is not node}
        return _Restore(self.inner).visit(super().transform_ast(node, context))


def _definition_of(function: FunctionType) -> _Function:
    """Return the syntax tree of a function, with the place of each node in its file."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise OSError(f"its source {code.co_filename} is not available")
    found = [node for node in _functions_in(_parsed("".join(lines))) if _may_be(node, code)]
    if len({ast.dump(node) for node in found}) != 1:
        raise OSError(f"{code.co_filename} has {len(found)} such definitions in line {code.co_firstlineno}")
    definition = copy.deepcopy(found[0])
    for node in ast.walk(definition):
        if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            place = Location(code.co_filename, node.lineno, node.col_offset)
            anno.setanno(node, anno.Basic.ORIGIN, OriginInfo(place, function.__name__, "", None))
    return definition


@functools.lru_cache(maxsize=4)  # a pipeline's functions lie in few files
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _may_be(node: _Function, code: CodeType) -> bool:
    """Whether a definition is that of a code object, as far as the name, the arguments and the place tell."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    names = tuple(argument.arg for argument in arguments)
    if first != code.co_firstlineno or getattr(node, "name", "<lambda>") != code.co_name:
        return False
    if names != code.co_varnames[: len(names)]:
        return False
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return not isinstance(node, ast.Lambda) or all(begin <= place < end for place in places)


def _functions_in(root: ast.AST) -> Iterator[_Function]:
    for node in ast.walk(root):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node


def _place_of(node: _Function) -> tuple[Any, ...] | None:
    origin = anno.getanno(node, anno.Basic.ORIGIN, default=None)
    names = tuple(argument.arg for argument in node.args.args)
    return None if origin is None else (type(node), getattr(node, "name", ""), names, *origin.loc[1:])


class _Restore(ast.NodeTransformer):
    """Puts inner functions back as they were."""

    def __init__(self, functions: Mapping[Any, _Function]) -> None:
        self._functions = functions

    def visit_FunctionDef(self, node: Any) -> Any:
        original = self._functions.get(_place_of(node))
        return self.generic_visit(node) if original is None else original

    visit_Lambda = visit_FunctionDef  # noqa: N815


def _locate(node: ast.AST, line: int, located: Collection[ast.AST]) -> None:
    """Set the line numbers of a tree to those of the user's file. Columns stay unknown.

    Args:
        node: the root.
        line: the line of its parent.
        located: nodes that have their places.
    """
    if any(node is each for each in located):
        return
    origin = anno.getanno(node, anno.Basic.ORIGIN, default=None)
    line = line if origin is None else origin.loc.lineno
    if isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias, ast.excepthandler, ast.pattern)):
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = -1
    for child in ast.iter_child_nodes(node):
        _locate(child, line, located)
