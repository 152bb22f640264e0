"""Chakra's messages for the protobuf package, built from the schema's numbers and names."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
_NODE = (
    ("id", "uint64", False),
    ("name", "string", False),
    ("type", "int32", False),  # an enumeration, which is written as one
    ("ctrl_deps", "uint64", True),
    ("data_deps", "uint64", True),
    ("start_time_micros", "uint64", False),
    ("duration_micros", "uint64", False),
    ("inputs", "IOInfo", False),
    ("outputs", "IOInfo", False),
    ("attr", "AttributeProto", True),
)


def messages() -> dict:
    """The classes `GlobalMetadata`, `Node` and `AttributeProto`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", syntax="proto3", package="chakra"
    )
    _message(file, "IOInfo", [(name, "string", False) for name in ("values", "shapes", "types")])
    for kind in _SCALARS:
        _message(file, f"{kind.title()}List", [("values", kind, True)])
    attribute = _message(
        file, "AttributeProto", [("name", "string", False), ("doc_string", "string", False)]
    )
    attribute.oneof_decl.add(name="value")
    for i, kind in enumerate(_SCALARS):
        _field(attribute, f"{kind}_val", 3 + 2 * i, kind, False).oneof_index = 0
        _field(attribute, f"{kind}_list", 4 + 2 * i, f"{kind.title()}List", False).oneof_index = 0
    _message(
        file, "GlobalMetadata", [("version", "string", False), ("attr", "AttributeProto", True)]
    )
    _message(file, "Node", _NODE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in ("GlobalMetadata", "Node", "AttributeProto")
    }


def _message(file, name: str, fields):
    message = file.message_type.add(name=name)
    for number, (field, kind, repeated) in enumerate(fields, 1):
        _field(message, field, number, kind, repeated)
    return message


def _field(message, name: str, number: int, kind: str, repeated: bool):
    types = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number)
    field.label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = getattr(types, f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = types.TYPE_MESSAGE, f".chakra.{kind}"
    return field
