"""What a grid file says of the second run of its reference, and of candidates that should be lossless."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_redline.complaints import Complaints, no_such_label
from pytest_redline.grid import Configuration, NoiseFloor
from pytest_redline.grid_schema import GridModel, NoiseFloorModel

SERVED_AGAIN = "A/A"  # what the second run is called where the grid gives it no label


def declared_noise_floor(
    complaints: Complaints, model: GridModel, configurations: Sequence[Configuration]
) -> NoiseFloor | None:
    """Second run of the reference that a grid declares, or None: without one, or after complaints."""
    written = model.noise_floor
    if written is None or written is False or complaints.is_tainted(("source",)):
        return None
    at = ("noise_floor",)
    if model.stopping is not None:
        complaints.complain(at, "with `stopping` not every candidate is served in full; leave one of the two out")
    labels = [each.label for each in configurations]
    label = written if isinstance(written, str) else SERVED_AGAIN
    if model.source.engine is not None:
        if written is not True:
            complaints.complain(at, "write true: the engine serves the reference a second time")
    elif written is True:
        complaints.complain(
            at, "true is for a source that serves; name the label of the recorded second run, or its file with `log:`"
        )
    elif any(each.log is not None for each in configurations):
        if isinstance(written, str):
            complaints.complain(at, "each configuration has its own file here; write {log: FILE}")
    elif isinstance(written, NoiseFloorModel):
        complaints.complain(at, "the source names one file for all; write the label of the second run's rows")
    if label in labels:
        what = "the reference" if label == model.reference else "a configuration of this grid"
        complaints.complain(at, f"{label!r} is {what}; the second run needs a label of its own")
    log = complaints.path.parent / written.log if isinstance(written, NoiseFloorModel) else None
    return NoiseFloor(label, log)


def lossless_labels(
    complaints: Complaints, model: GridModel, labels: Sequence[str], deploy_only: bool
) -> tuple[str, ...]:
    """Candidates that a grid declares to be lossless."""
    if model.lossless and deploy_only:
        complaints.complain(
            ("lossless",), "tells faults where every candidate is served in full; run without --redline-deploy-only"
        )
    if model.lossless and (model.noise_floor is None or model.noise_floor is False):
        complaints.complain(
            ("lossless",), "what is lossless is told by a second run of the reference; declare noise_floor too"
        )
    for index, label in enumerate(model.lossless):
        if label in model.lossless[:index]:
            complaints.complain(("lossless",), f"{label!r} stands twice")
        elif label == model.reference:
            complaints.complain(("lossless",), f"{label!r} is the reference, which its second run is compared with")
        elif label not in labels:
            complaints.complain(("lossless",), no_such_label(label, labels))
    return tuple(model.lossless)
