"""Converts the runs that an earlier version kept in MLflow's database to folders: python scripts/convert_runs.py ROOT

`toolformer runs`, `report` and `compare` then read them, with all numbers. They have version 0, so no stage builds on them:
their data lacks what this version reads. Files are hard links; the database and the old files stay as they are.
"""

import hashlib
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from mlflow.tracking import MlflowClient

from toolformer.annotation.merge import decide
from toolformer.annotation.results import with_decisions
from toolformer.results.folder import add_name
from toolformer.step import Step
from toolformer.storage import safe_join, sha256

SOURCES = {"generate": "", "train": "dataset", "evaluate": "train", "explain": "evaluate"}
"""The run that a stage's runs were made from, as in the tag `lineage.*_run_id`."""
SECONDARY = "name seed filter_threshold paths engine run tracking like dataset checkpoint tool".split()
"""Keys of the configuration in which runs of one table may differ."""
INTERNAL = re.compile(r"(mlflow|sha256|changed|lineage)\.|(stage|project|experiment)$")
DISPLAY = ("Score/", "Perplexity/")


def convert(client: MlflowClient, root: Path, row: Any, steps: dict[str, Step]) -> None:
    """Writes a run's folder; `steps` are those of the runs before it, by MLflow's id."""
    run_id, tags, stage = row.info.run_id, row.data.tags, row.data.tags["stage"]
    old = safe_join(root, "artifacts", run_id, "artifacts")
    config = yaml.safe_load((old / "config.yaml").read_text(encoding="utf-8"))
    limits = {key: config["tool"][key]["filter_threshold"] for key in config["tools"]}
    limits = {key: config["filter_threshold"] if own is None else own for key, own in limits.items()}
    rest = [{**config["tool"][key], "filter_threshold": None} for key in config["tools"]]
    rest += [{key: value for key, value in config.items() if key not in SECONDARY}]
    settings: dict[str, Any] = {"filter_threshold": limits, "filter": config["filter"]}
    settings["rest"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    settings["seed"] = [config["seed"], tags["fingerprint"]]
    source = steps.get(tags.get(f"lineage.{SOURCES[stage]}_run_id", ""))
    step = steps[run_id] = Step(stage, 0, settings, {"source": source} if source else {})
    folder = safe_join(root, stage, step.key())
    if (folder / "result.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    add_name(folder, tags["experiment"])
    digests: dict[str, str] = {}
    for path in filter(Path.is_file, old.rglob("*")):
        name = path.relative_to(old).as_posix()
        target = safe_join(folder, *name.split("/"))
        target.parent.mkdir(exist_ok=True)
        target.unlink(missing_ok=True)
        if name == "candidates.parquet":  # this version reads why a call was not kept
            table = pq.read_table(path).drop_columns(["kept"])
            decisions = decide(table.to_pylist(), limits, config["filter"]["baseline"])
            pq.write_table(with_decisions(table, decisions), target)
        else:
            target.hardlink_to(path)
        digests |= {name: sha256(target)} if name != "config.yaml" else {}
    metrics = {key: v for key, v in row.data.metrics.items() if v == v and not key.startswith(DISPLAY)}
    with (folder / "metrics.jsonl").open("w") as file:
        for key in metrics if stage == "train" else ():
            for point in client.get_metric_history(run_id, key):
                values = {"step": point.step, "time": point.timestamp / 1000, key: point.value}
                print(json.dumps(values), file=file)
    facts = {key: value for key, value in tags.items() if key != "error" and not INTERNAL.match(key)}
    if policy := tags.get("decoding.k"):
        facts |= {"policy": policy, "k": int(policy) if policy.isdecimal() else None}
    times = row.info.start_time, row.info.end_time
    began, ended = (datetime.fromtimestamp(time / 1000, UTC).isoformat() for time in times)
    record = {**step.as_json(), "title": row.info.run_name, "started": began, "config": config}
    typed = re.search(r"^(`{3,})\n(.+)\n\1\Z", tags.get("mlflow.note.content", ""), re.MULTILINE)
    command = typed[2] if typed else f"toolformer {stage}"
    record |= {"command": command, "facts": facts | {"wording": config["wording"]}}
    result = {"ended": ended, "status": "FINISHED", "metrics": metrics, "facts": {}, "digests": digests}
    entry = {"local": {"run_id": run_id, "sent": ended}}
    for name, content in {"step": record, "mlflow": entry, "result": result}.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def main(root: Path) -> None:
    client = MlflowClient(f"sqlite:///{root.resolve().as_posix()}/mlflow.db")
    rows = client.search_runs([e.experiment_id for e in client.search_experiments()], max_results=50_000)
    steps: dict[str, Step] = {}
    for stage in SOURCES:
        for row in rows:
            is_old = row.data.tags.get("stage") == stage and "key" not in row.data.tags
            if is_old and row.info.status == "FINISHED":
                convert(client, root, row, steps)
    print(f"{len(steps)} runs converted in {root}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser())
