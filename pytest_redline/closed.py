"""What all models of what is written have in common: no unknown keys, no change, no NaN."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Count = Annotated[int, Field(ge=0)]
Bounds = tuple[float, float]
Probability = Annotated[float, Field(gt=0, lt=1)]


class Closed(BaseModel):
    """A model that is written to a file; fields in ``left_out`` only where they differ from their default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    left_out: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        for name in self.left_out:
            if getattr(self, name) == type(self).model_fields[name].default:
                data.pop(name, None)
        return data
