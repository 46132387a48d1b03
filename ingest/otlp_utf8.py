"""Protobuf whose text is not UTF-8, mended: bad bytes become U+FFFD, all else stays as it was."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from ingest.errors import BadInput


def repair(kind: type[Message], body: bytes) -> bytes:
    """`body` with valid UTF-8 in every text field of message `kind`. Raises BadInput('bad-protobuf') when it is no such message."""
    try:
        loose = _without_text(kind.DESCRIPTOR).FromString(body)
    except DecodeError as err:
        raise BadInput("bad-protobuf", f"not an {kind.DESCRIPTOR.name}: truncated, damaged or nested too deep") from err
    _mend(loose, kind.DESCRIPTOR)
    return bytes(loose.SerializeToString())


def _mend(loose: Any, strict: Any) -> None:
    for field, value in loose.ListFields():
        wanted = strict.fields_by_number[field.number]
        if wanted.message_type is not None:
            for item in value if wanted.is_repeated else (value,):
                _mend(item, wanted.message_type)
        elif wanted.type == FieldDescriptor.TYPE_STRING:
            if wanted.is_repeated:
                value[:] = [_valid(item) for item in value]
            else:
                setattr(loose, field.name, _valid(value))


def _valid(raw: bytes) -> bytes:
    return raw.decode("utf-8", "replace").encode()


@cache
def _without_text(strict: Descriptor) -> Any:
    """The same message with `bytes` wherever the original says `string`."""
    pool = descriptor_pool.DescriptorPool()
    _add(strict.file, pool, set())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(strict.full_name))


def _add(file: FileDescriptor, pool: Any, done: set[str]) -> None:
    if file.name in done:
        return
    done.add(file.name)
    for needed in file.dependencies:
        _add(needed, pool, done)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        _loosen(message)
    pool.Add(proto)


def _loosen(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
    for inner in message.nested_type:
        _loosen(inner)
