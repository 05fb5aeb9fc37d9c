"""A pickle read without making anything of it: names stay names, calls stay calls.

Invariants:
- nothing that a pickle names is imported, called or built; what it says becomes Name, Made and Pairs;
- what is read is of a known opcode, within the bytes, and no larger than they are: else Unreadable;
- no value is hashed, compared or walked here: a pickle can tie values into knots that have no end.

Example:
    value, names = read(pickle.dumps(datetime.timedelta(3)))
    value      # Made(Name("datetime", "timedelta"), (3, 0, 0))
    names      # {"datetime.timedelta"}
"""

import gc
import io
import pickletools
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

LARGEST_INTEGER_BYTES = 16
LONGEST_NAME = 500  # characters: of a name that is told


class Unreadable(ValueError):
    """The bytes are no pickle of the kind that checkpoints hold."""


@dataclass(slots=True, eq=False, repr=False)
class Name:
    """Something that the pickle names: a class, a function, a dtype."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False, repr=False)
class Pairs:
    """A dictionary as its pairs, in order."""

    items: list[tuple[Any, Any]] = field(default_factory=list)

    def get(self, key: str) -> Any:
        """The value of a key that is text; None where there is none."""
        return next((value for k, value in reversed(self.items) if isinstance(k, str) and k == key), None)


@dataclass(slots=True, eq=False, repr=False)
class Made:
    """What a call would have made: of what, with which arguments; `state` is what it would have been given after."""

    of: Any
    arguments: Any
    state: Any = None
    added: list[Any] = field(default_factory=list)
    """What would have been appended, or set as pairs."""
    NEW: ClassVar[str] = "__new__"
    how: str = "call"

    def named(self, name: str) -> bool:
        return isinstance(self.of, Name) and str(self.of) == name

    def get(self, key: str) -> Any:
        return self.state.get(key) if isinstance(self.state, Pairs) else None


@dataclass(slots=True, eq=False, repr=False)
class Persistent:
    """A reference to what lies elsewhere: a tensor's storage."""

    reference: Any


_MARK = object()
_STOP = ord(".")
_TEXT_WIDTHS = (("SHORT_BINUNICODE", 1), ("BINUNICODE", 4))
_PLAIN = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "FLOAT", "BINFLOAT",
})  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list, "EMPTY_DICT": Pairs, "EMPTY_SET": lambda: Made(Name("builtins", "set"), ()),
}  # fmt: skip


def read(data: bytes) -> tuple[Any, set[str]]:
    """The value of a pickle as inert parts, and every name that it names.

    Raises:
        Unreadable: it is none, is cut off, or has what no checkpoint has.
    """
    machine = _Machine()
    collected = gc.isenabled()
    gc.disable()  # millions of parts that all stay: looking through them again and again takes most of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old strings
            for name, argument in _opcodes(data):
                machine.take(name, argument)
        return machine.end(), machine.names
    except Unreadable:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error) as fault:
        raise Unreadable(f"no pickle that can be read: {type(fault).__name__}: {str(fault)[:200]}") from None
    finally:
        if collected:
            gc.enable()


_WITHOUT = {ord(op.code): op.name for op in pickletools.opcodes if op.arg is None}
_OTHERS = {ord(op.code): op for op in pickletools.opcodes if op.arg is not None}
# The frequent ones, whose arguments are read here: pickletools takes five times as long. Bytes of the argument.
_FIXED = {
    ord(op.code): (op.name, width)
    for op in pickletools.opcodes
    for name, width in (
        ("BININT1", 1), ("BININT2", 2), ("BINGET", 1), ("LONG_BINGET", 4), ("BINPUT", 1), ("LONG_BINPUT", 4),
        ("PROTO", 1), ("FRAME", 8),
    )
    if op.name == name
}  # fmt: skip
_TEXT = {ord(op.code): (op.name, w) for op in pickletools.opcodes for n, w in _TEXT_WIDTHS if op.name == n}


def _opcodes(data: bytes) -> Iterator[tuple[str, Any]]:
    """Names of opcodes with their arguments, to the one that ends the pickle."""
    file, place, size = io.BytesIO(data), 0, len(data)
    while place < size:
        code = data[place]
        place += 1
        if code in _WITHOUT:
            if code == _STOP:
                return
            yield _WITHOUT[code], None
        elif code in _FIXED:
            name, width = _FIXED[code]
            end = place + width
            if end > size:
                break
            yield name, int.from_bytes(data[place:end], "little")
            place = end
        elif code in _TEXT:
            name, width = _TEXT[code]
            begin = place + width
            end = begin + int.from_bytes(data[place:begin], "little")
            if end > size:
                break
            yield name, data[begin:end].decode("utf-8", "surrogatepass")
            place = end
        elif code in _OTHERS:
            opcode = _OTHERS[code]
            assert opcode.arg is not None  # noqa: S101
            file.seek(place)
            yield opcode.name, opcode.arg.reader(file)
            place = file.tell()
        else:
            raise Unreadable(f"no pickle: byte 0x{code:02x} at {place - 1} is no opcode")
    raise Unreadable("no pickle: it was cut off")


class _Machine:
    """The stack machine of pickles, over inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.names: set[str] = set()
        found = {op.name: getattr(self, f"_{op.name.lower()}", None) for op in pickletools.opcodes}
        self.steps = {name: step for name, step in found.items() if step is not None}

    def end(self) -> Any:
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise Unreadable(f"{len(self.stack)} values at the end of the pickle, where there is one")
        return self.stack[0]

    def take(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            if isinstance(argument, int) and argument.bit_length() > 8 * LARGEST_INTEGER_BYTES:
                raise Unreadable(f"an integer of {argument.bit_length()} bits")
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in {"PROTO", "FRAME"}:
            return
        else:
            step = self.steps.get(name)
            if step is None:
                raise Unreadable(f"opcode {name}, which no checkpoint has")
            step(argument)

    # --- stack and memo

    def _pop(self, _: Any = None) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Unreadable("takes a value where there is none")
        return self.stack.pop()

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Unreadable("looks at a value where there is none")
        return self.stack[-1]

    def _since_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                found = self.stack[index + 1 :]
                del self.stack[index:]
                return found
        raise Unreadable("goes back to a mark that is not there")

    def _mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def _pop_mark(self, _: Any) -> None:
        self._since_mark()

    def _dup(self, _: Any) -> None:
        self.stack.append(self._top())

    def _put(self, index: int) -> None:
        self.memo[index] = self._top()

    _binput = _long_binput = _put

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self._top()

    def _get(self, index: int) -> None:
        if index not in self.memo:
            raise Unreadable(f"speaks of value {index}, which it never had")
        self.stack.append(self.memo[index])

    _binget = _long_binget = _get

    # --- containers

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _tuple1(self, _: Any) -> None:
        self.stack.append((self._pop(),))

    def _tuple2(self, _: Any) -> None:
        second, first = self._pop(), self._pop()
        self.stack.append((first, second))

    def _tuple3(self, _: Any) -> None:
        third, second, first = self._pop(), self._pop(), self._pop()
        self.stack.append((first, second, third))

    def _list(self, _: Any) -> None:
        self.stack.append(self._since_mark())

    def _dict(self, _: Any) -> None:
        self.stack.append(Pairs(_paired(self._since_mark())))

    def _frozenset(self, _: Any) -> None:
        self.stack.append(Made(Name("builtins", "frozenset"), tuple(self._since_mark())))

    def _append(self, _: Any) -> None:
        value = self._pop()
        self._extend([value])

    def _appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    _additems = _appends

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, Made):
            target.added.extend(values)
        else:
            raise Unreadable(f"adds to a {type(target).__name__}")

    def _setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set([(key, value)])

    def _setitems(self, _: Any) -> None:
        self._set(_paired(self._since_mark()))

    def _set(self, pairs: list[tuple[Any, Any]]) -> None:
        target = self._top()
        if isinstance(target, Pairs):
            target.items.extend(pairs)
        elif isinstance(target, Made):
            target.added.extend(pairs)
        else:
            raise Unreadable(f"sets items of a {type(target).__name__}")

    # --- what would have been made

    def _name(self, module: Any, name: Any) -> Name:
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > LONGEST_NAME:
            raise Unreadable("names something whose name is no name")
        found = Name(module, name)
        self.names.add(str(found))
        return found

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(self._name(module, name))

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self.stack.append(self._name(module, name))

    def _reduce(self, _: Any) -> None:
        arguments, of = self._pop(), self._pop()
        self.stack.append(Made(of, arguments))

    def _newobj(self, _: Any) -> None:
        arguments, of = self._pop(), self._pop()
        self.stack.append(Made(of, arguments, how=Made.NEW))

    def _newobj_ex(self, _: Any) -> None:
        keywords, arguments, of = self._pop(), self._pop(), self._pop()
        self.stack.append(Made(of, (arguments, keywords), how=Made.NEW))

    def _inst(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(Made(self._name(module, name), tuple(self._since_mark())))

    def _obj(self, _: Any) -> None:
        found = self._since_mark()
        if not found:
            raise Unreadable("makes something of nothing")
        self.stack.append(Made(found[0], tuple(found[1:])))

    def _build(self, _: Any) -> None:
        state, target = self._pop(), self._top()
        if not isinstance(target, Made):
            raise Unreadable(f"gives a state to a {type(target).__name__}")
        target.state = state

    def _binpersid(self, _: Any) -> None:
        self.stack.append(Persistent(self._pop()))

    def _persid(self, argument: str) -> None:
        self.stack.append(Persistent(argument))


def _paired(values: list[Any]) -> list[tuple[Any, Any]]:
    if len(values) % 2:
        raise Unreadable("a key without a value")
    return list(zip(values[::2], values[1::2], strict=True))


def write(value: Any, limit_bytes: int) -> bytes:
    """The pickle, protocol 2, of what was read: what a program makes of it is what it would have made before.

    Raises:
        Unreadable: it is tied into knots, or grows beyond limit_bytes.
    """
    parts = [b"\x80\x02"]
    known: dict[bytes, int] = {}  # texts and names: written once, then spoken of by number
    size, todo = 0, [value]
    while todo:
        item = todo.pop()
        if not isinstance(item, _Opcode):
            todo.extend(reversed(_written(item)))
            size += 1  # a knot of empty parts grows too
        elif item.data[:1] not in b"Xc":
            parts.append(item.data)
        elif item.data in known:
            parts.append(b"j" + struct.pack("<I", known[item.data]))
        else:
            known[item.data] = len(known)
            parts.append(item.data + b"r" + struct.pack("<I", known[item.data]))
        size += len(parts[-1]) if isinstance(item, _Opcode) else 0
        if size > limit_bytes or len(todo) > limit_bytes:
            raise Unreadable(f"grows beyond {limit_bytes} bytes when it is written again")
    return b"".join([*parts, b"."])


@dataclass(frozen=True, slots=True)
class _Opcode:
    data: bytes


def _written(value: Any) -> list[Any]:
    """What stands for a value: opcodes, and parts that are written in their turn."""
    plain = _plain_opcode(value)
    if plain is not None:
        return [_Opcode(plain)]
    match value:
        case tuple():
            return [_Opcode(b"("), *value, _Opcode(b"t")]
        case list():
            return [_Opcode(b"]("), *value, _Opcode(b"e")]
        case Pairs():
            return [_Opcode(b"}("), *(part for pair in value.items for part in pair), _Opcode(b"u")]
        case Made() if not value.added:
            state = [] if value.state is None else [value.state, _Opcode(b"b")]
            return [value.of, value.arguments, _Opcode(b"\x81" if value.how == Made.NEW else b"R"), *state]
    raise Unreadable(f"a {type(value).__name__} cannot be written again")


def _plain_opcode(value: Any) -> bytes | None:
    match value:
        case None | bool():
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int():
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(data)]) + data
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"X" + struct.pack("<I", len(data)) + data
        case Name():
            if "\n" in value.module or " " in value.module or "\n" in value.name or not str(value).isascii():
                raise Unreadable(f"a name that cannot be written: {str(value)!r}")
            return f"c{value.module}\n{value.name}\n".encode()
    return None
