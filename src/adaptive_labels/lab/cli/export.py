"""`alr export`: a trained network as a folder for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Json, Plugin, argument, option
from adaptive_labels.lab.cli.output import prose, show_json

_RUN = "A finished run; or a folder of runs, whose best on validation is taken."
_OUTPUT = "The new folder; by default RUN-export here."
_FORMATS = "onnx (the default), safetensors, pt2, or several."


@app.command()
def export(
    run: Annotated[Path, argument("RUN", _RUN)],
    output: Annotated[Path | None, option("DIR", _OUTPUT, "-o", "--output")] = None,
    formats: Annotated[str, option("A,B,…", _FORMATS, "--format")] = "onnx",
    logits: Annotated[bool, option(None, "Leave out temperature and softmax.", "--logits")] = False,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """A trained network for other programs: ONNX and a model card."""
    from adaptive_labels.lab.experiments.export.choice import best_run
    from adaptive_labels.lab.experiments.export.folder import export_run, parse_formats

    chosen = parse_formats(formats)
    if not (run / "config.json").exists():
        run, why = best_run(run)
        if not as_json:
            prose(why)
    out = Path(f"{run.name}-export") if output is None else output
    checked, differences = export_run(run, out, chosen, logits)
    if as_json:
        show_json({"run": str(run), "output": str(out), "largest_difference": differences})
        return
    for name, difference in differences.items():
        prose(f"{name}: on {checked} validation inputs, within {difference:.1g} of `alr predict`.")
    typer.echo(f"Export: {out}")
