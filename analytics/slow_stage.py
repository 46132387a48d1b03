"""One stage's sampled runs as arrays: its work, its own time split into measured waits and service time, and its surroundings.

Must stay true: unknown work is NaN or `known = False`, never zero work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analytics.slow_load import MIN_RUNS, Data

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

BLOCK_S = 60.0
# A stage whose work is declared on fewer of its runs has no outside reference.
KNOWN_SHARE = 0.8
WORK = ("fixed", "uncached_tokens", "output_tokens", "kilobytes", "rows", "items")
TOKENLESS_OUTPUT = ("embed", "rerank")
MAX_TOKENS = 1e8
# No prompt is so short; and runs of one stage do not differ by so much, unless they count in other units.
MIN_PROMPT, OTHER_UNIT = 4.0, 200.0
NEAR_S = 45.0
# Measured waits inside a stage, and the cause each one is evidence of.
MEASURED: Mapping[str, str] = {
    "ev_queue_ms": "queueing",
    "ev_batch_wait_ms": "batch_stall",
    "ev_lock_wait_ms": "lock_wait",
    "ev_context_init_ms": "context_init",
    "ev_serialise_ms": "payload",
    "ev_cpu_ms": "cpu_blocking",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Arrays over the `n` sampled runs that did not fail, in order of time. Times in ms.

    `work` is n x 6 in the order of WORK; `known` says where the work is declared; `service_ms` is one attempt without declared
    and measured waits; `parts` are the measured waits by cause, and `retry`; `on_path` is the share on the critical path.
    """

    service: str
    name: str
    kind: str
    tier: str
    model: str
    tool: str
    gpu: str
    runs: int
    weight: float
    frame: pd.DataFrame
    work: Array
    known: Flags
    service_ms: Array
    parts: Mapping[str, Array]
    on_path: Array
    block: npt.NDArray[np.int64]

    @property
    def known_share(self) -> float:
        return float(self.known.mean()) if len(self.known) else 0.0

    @property
    def label(self) -> str:
        return f"{self.service}/{self.name}"

    @property
    def tools(self) -> npt.NDArray[np.str_]:
        """The tool of each run."""
        return self.frame["tool"].to_numpy(str)

    def fact(self, name: str) -> Array:
        """A column of the frame as floats; NaN where a run does not say."""
        if name not in self.frame:
            return np.full(len(self.frame), np.nan)
        found: Array = self.frame[name].to_numpy(dtype=float, na_value=np.nan)
        return found


def stages(data: Data) -> list[Stage]:
    """The stages of a window that can be judged, those with most time on the critical path first."""
    if not len(data.runs):
        return []
    good = data.runs[(data.runs["failed"] == 0) & (data.runs["kind"] != "wait") & (data.runs["self_ms"] > 0)]
    around = _surroundings(_with_siblings(good).sort_values(["ts", "trace"], kind="stable"), data)
    sizes = around.groupby(["service", "stage"], sort=False)["ts"].transform("size")
    by_name = dict(list(around[sizes >= MIN_RUNS].groupby(["service", "stage"], sort=False)))
    found = []
    totals = data.totals
    succeeded = (totals["runs"].astype(int) - totals["failed"].astype(int)).tolist()
    for service, name, runs in zip(totals["service"].tolist(), totals["stage"].tolist(), succeeded, strict=True):
        frame = by_name.get((service, name))
        if frame is not None:
            found.append(_stage(frame.reset_index(drop=True), runs))
    return found


def _with_siblings(runs: pd.DataFrame) -> pd.DataFrame:
    """Adds `trace_tokens`: tokens of the same trace on stages that declare them nearly always. Only where some stage does not, as it
    tells whether slices of that stage met requests of another size."""
    tokens = runs["input_tokens"] + runs["output_tokens"]
    told = tokens.notna().groupby([runs["service"], runs["stage"]], sort=False).transform("mean")
    if not ((told < KNOWN_SHARE) & (runs["model"] != "")).any():
        return runs.assign(trace_tokens=np.nan)
    told_tokens = tokens.where(told >= KNOWN_SHARE)
    return runs.assign(trace_tokens=told_tokens.groupby(runs["trace"], sort=False).transform("sum", min_count=1))


def _stage(frame: pd.DataFrame, runs: int) -> Stage:
    usual = np.nan_to_num(frame["ev_fallback"].to_numpy(float)) == 0
    main = frame if usual.all() or usual.sum() < MIN_RUNS else frame[usual]
    kind, tier, model, tool = (_most(main[name]) for name in ("kind", "tier", "model", "tool"))
    work, known = _work(frame, kind, model)
    service_ms, parts = _split(frame, model)
    own = frame["self_ms"].to_numpy(float)
    on_path = np.clip(frame["critical_ms"].to_numpy(float) / np.maximum(own, 1e-6), 0.0, 1.0)
    block = (frame["ts"].to_numpy(float) // BLOCK_S).astype(np.int64)
    first = frame.iloc[0]
    return Stage(
        str(first["service"]),
        str(first["stage"]),
        kind,
        tier,
        model,
        tool,
        _most(main["gpu_model"]),
        runs,
        runs / len(frame),
        frame,
        work,
        known,
        service_ms,
        parts,
        on_path,
        block,
    )


def _work(frame: pd.DataFrame, kind: str, model: str) -> tuple[Array, Flags]:
    """Declared work, and where it is known. A model's stage without tokens (or with none at all) has unknown work."""
    given = frame["input_tokens"].to_numpy(float)
    cached = frame["cached_tokens"].fillna(0).to_numpy(float)
    out = frame["output_tokens"].to_numpy(float)
    if kind in TOKENLESS_OUTPUT:
        out = np.nan_to_num(out)
    columns = [np.ones(len(frame)), np.maximum(given - cached, 0.0), out]
    columns += [frame[name].to_numpy(float) for name in ("payload_bytes", "row_count", "items")]
    columns[3] = columns[3] / 1e3
    work = np.column_stack(columns)
    sane = (given >= 0) & (out >= 0) & (given + out > 0) & (given < MAX_TOKENS) & (out < MAX_TOKENS)
    return np.nan_to_num(work), _one_unit(given, sane, kind) if model else np.ones(len(frame), dtype=bool)


def _one_unit(given: Array, sane: Flags, kind: str) -> Flags:
    """Of the counts that can be, those in the unit of the stage's other runs: one host that counts in thousands tells nothing."""
    if not sane.any():
        return sane
    found: Flags = sane & (given * OTHER_UNIT >= np.quantile(given[sane], 0.75))
    if kind not in TOKENLESS_OUTPUT and float(np.median(given[sane])) < MIN_PROMPT:
        return np.zeros(len(given), dtype=bool)
    return found


def _split(frame: pd.DataFrame, model: str) -> tuple[Array, dict[str, Array]]:
    """Own time without declared wait = measured waits + retries x one attempt + one attempt.

    CPU time is a wait only where a model on a device should be doing the work; elsewhere it is the work.
    """
    busy = np.maximum(frame["self_ms"].to_numpy(float) - frame["wait_ms"].to_numpy(float), 0.0)
    left = busy.copy()
    parts: dict[str, Array] = {}
    for column, cause in MEASURED.items():
        if cause == "cpu_blocking" and not model:
            continue
        spent = frame[column].to_numpy(float)
        taken = np.minimum(np.where(spent > 0, spent, 0.0), 0.98 * left)
        parts[cause] = parts.get(cause, 0.0) + taken
        left = left - taken
    retries = frame["retries"].to_numpy(float)
    once = left / (1.0 + np.where(retries > 0, np.minimum(retries, 100.0), 0.0))
    parts["retry"] = left - once
    return np.maximum(once, 1e-3), parts


def _surroundings(runs: pd.DataFrame, data: Data) -> pd.DataFrame:
    """Join each run with the samples nearest to its middle, on its very host (and device where it says which)."""
    middle = runs["ts"] + runs["duration_ms"] / 2e3
    runs = runs.assign(middle=middle.to_numpy(float), gpu_key=_gpu_key(runs)).sort_values("middle", kind="stable")
    runs = _nearest(runs, data.host, ["host"], ["cpu", "cpu_load", "disk_queue", "net_rtt"])
    runs = _nearest(runs, data.engine, ["host"], ["running", "waiting", "engine_kv"])
    gpu = data.gpu
    runs["gpu_model"] = _gpu_model(runs, gpu)
    if len(gpu):
        columns = ["sm", "dram", "gpu_mem", "pcie"]
        any_device = gpu.groupby(["ts", "host"], as_index=False)[columns].max().assign(gpu_key="")
        gpu = pd.concat([gpu.rename(columns={"gpu": "gpu_key"})[["ts", "host", "gpu_key", *columns]], any_device])
    runs = _nearest(runs, gpu, ["host", "gpu_key"], ["sm", "dram", "gpu_mem", "pcie"])
    runs["in_flight"] = _in_flight(runs, data.load)
    return runs.sort_values(["ts", "trace"], kind="stable")


def _gpu_key(runs: pd.DataFrame) -> list[str]:
    return ["" if value != value else str(int(value)) for value in runs["ev_gpu"].to_numpy(float)]


def _gpu_model(runs: pd.DataFrame, gpu: pd.DataFrame) -> list[str]:
    """The name of the card that served each run; empty where no sample says."""
    if not len(gpu) or "gpu_model" not in gpu:
        return [""] * len(runs)
    known = gpu.drop_duplicates(["host", "gpu"])
    by_card = {
        (host, card): name for host, card, name in zip(known["host"], known["gpu"], known["gpu_model"], strict=True)
    }
    return [str(by_card.get(key, "")) for key in zip(runs["host"], runs["gpu_key"], strict=True)]


def _nearest(runs: pd.DataFrame, samples: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    if not len(samples):
        return runs.assign(**dict.fromkeys(columns, np.nan))
    right = samples[["ts", *by, *columns]].rename(columns={"ts": "middle"})
    kinds = {"middle": float, **dict.fromkeys(columns, float), **dict.fromkeys(by, object)}
    right = right.astype(kinds).sort_values("middle", kind="stable")
    runs = runs.astype(dict.fromkeys(by, object))
    return pd.merge_asof(runs, right, on="middle", by=by, direction="nearest", tolerance=NEAR_S)  # type: ignore[arg-type]


def _in_flight(runs: pd.DataFrame, load: pd.DataFrame) -> Array:
    """Mean number in flight of the same stage in the run's minute, over all runs and not only those sampled."""
    if not len(load):
        return np.full(len(runs), np.nan)
    keys = pd.MultiIndex.from_arrays([runs["service"], runs["stage"], (runs["ts"] // 60 * 60).astype("int64")])
    table = load.assign(minute=load["minute"].astype("int64")).set_index(["service", "stage", "minute"])["starts"]
    found: Array = table.reindex(keys).to_numpy(dtype=float, na_value=np.nan)
    return found


def _most(values: pd.Series[str]) -> str:
    if (values == values.iloc[0]).all():
        return str(values.iloc[0])
    counted = values[values != ""].value_counts()
    return str(counted.sort_index(kind="stable").idxmax()) if len(counted) else ""
