"""From rows of the store to findings: sampling, evidence, samples of hardware beside the runs, ids in names, and one trace judged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from analytics import run, slow, slow_load
from analytics.expectation_store import unjustified
from analytics.findings import Window
from ingest.store import Store
from tests.analytics.stage_faults import apply
from tests.analytics.stage_world import START, World

WINDOW = Window(START, START + timedelta(minutes=121))
TABLES = "stage_runs gpu_samples host_samples engine_samples findings analyzer_runs stage_expectations".split()

NAMES = {
    "trace": "TraceId",
    "service": "ServiceName",
    "stage": "Stage",
    "kind": "Kind",
    "tier": "Tier",
    "model": "Model",
    "tool": "Tool",
    "region": "Region",
    "device": "Device",
    "user_tier": "UserTier",
    "user": "UserId",
    "version": "Version",
    "host": "Host",
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("slow"))) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in TABLES:
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


def _insert_gpu(store: Store, world: World) -> None:
    if not len(world.gpu):
        return
    gpu = world.gpu.rename(columns={"host": "Host", "gpu": "Gpu"})
    stamped = gpu.assign(
        Timestamp=pd.to_datetime(gpu["ts"], unit="s", utc=True),
        Model="NVIDIA A10",
        SmActive=gpu["sm"].astype("float32"),
    )
    store.insert("gpu_samples", stamped[["Timestamp", "Host", "Gpu", "Model", "SmActive"]])


def insert(store: Store, world: World) -> pd.DataFrame:
    """The world's runs as rows of stage_runs, its samples as rows of gpu_samples."""
    runs = world.data().runs.reset_index(drop=True)
    rows = runs[list(NAMES)].rename(columns=NAMES)
    rows["Timestamp"] = pd.to_datetime(runs["ts"], unit="s", utc=True)
    rows["SpanId"] = [f"{i:016x}" for i in range(len(runs))]
    for column, source in (
        ("Duration", "duration_ms"),
        ("SelfTime", "self_ms"),
        ("CriticalTime", "critical_ms"),
        ("WaitTime", "wait_ms"),
    ):
        rows[column] = (runs[source] * 1e6).astype("uint64")
    rows["TraceDuration"], rows["Retries"], rows["Failed"] = (
        (runs["trace_ms"] * 1e6).astype("uint64"),
        runs["retries"].astype("uint16"),
        0,
    )
    counts = {
        "InputTokens": "input_tokens",
        "OutputTokens": "output_tokens",
        "PayloadBytes": "payload_bytes",
        "Items": "items",
    }
    for column, source in counts.items():
        rows[column] = runs[source].round().astype("UInt64")
    facts = [name for name in runs.columns if name.startswith("ev_")]
    maps = [
        [(name[3:], value) for name, value in zip(facts, row, strict=True) if value == value]
        for row in runs[facts].itertuples(index=False)
    ]
    table = pa.Table.from_pandas(rows, preserve_index=False)
    store.insert("stage_runs", table.append_column("Evidence", pa.array(maps, pa.map_(pa.string(), pa.float64()))))
    _insert_gpu(store, world)
    return rows


def test_the_store_gives_the_same_answer_as_the_frame(store: Store) -> None:
    world = World(seed=51, traces=1_000)
    apply(world, "gpu_contention", "outline", (0.3, 0.7), 1.4)
    apply(world, "prompt_bloat", "route")
    insert(store, world)
    found = run.run(store, WINDOW, [slow.ANALYZER])
    assert {(f.subject["stage"], f.cause) for f in found} == {("outline", "gpu_contention"), ("route", "prompt_bloat")}
    assert {f.key for f in found} == {f.key for f in slow.find(world.data())}
    assert store.value("SELECT RowsRead FROM analyzer_runs") == 13_000
    shown = store.read(found[0].query)
    assert 0 < len(shown) <= 100


def test_one_trace_is_judged_by_what_was_learnt(store: Store) -> None:
    world = World(seed=52, traces=600)
    apply(world, "prompt_bloat", "route")
    apply(world, "queueing", "merge")
    rows = insert(store, world)
    trace = rows["TraceId"].iloc[5]
    assert unjustified(store, trace) == {}
    run.run(store, WINDOW, [slow.ANALYZER])
    found = unjustified(store, trace)
    own = rows[rows["TraceId"] == trace].set_index("SpanId")
    by_stage = {stage: found[span] for span, stage in own["Stage"].items() if span in found}
    assert by_stage["route"] == pytest.approx((3_520 - 504) * 0.17, rel=0.25)
    assert by_stage["answer"] == 0.0
    assert by_stage["approve"] < 5.0
    waited = world.runs[(world.runs["stage"] == "merge") & (world.runs["trace"] == trace)]["ev_queue_ms"].iloc[0]
    assert by_stage["merge"] >= max(0.0, waited - 15.0) * 0.9
    for span, ms in found.items():
        assert 0.0 <= ms <= own.loc[span, "SelfTime"] / 1e6 + 1e-3


def test_sampling_keeps_whole_traces_and_scales_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed=53, traces=800)
    insert(store, world)
    monkeypatch.setattr(slow_load, "MAX_RUNS_PER_STAGE", 200)
    data = slow.ANALYZER.load(store, WINDOW)
    sizes = data.runs.groupby("trace").size()
    assert set(sizes) == {len(world.stages)}
    assert 120 < len(sizes) < 280
    assert data.totals["runs"].tolist() == [800] * len(world.stages)


def test_ids_in_names_are_merged_and_that_is_said(store: Store) -> None:
    world = World(seed=54, traces=150)
    world.runs["stage"] = [f"{name} {i:x}{i:08d}" for i, name in enumerate(world.runs["stage"])]
    insert(store, world)
    data = slow.ANALYZER.load(store, WINDOW)
    assert "1950 stage names" in data.note
    assert len(data.totals) <= 40
    assert slow.find(data) == []


def test_an_empty_window_reads_nothing(store: Store) -> None:
    data = slow.ANALYZER.load(store, WINDOW)
    assert data.rows_read == 0
    assert slow.find(data) == []


def test_evidence_becomes_columns_and_silence_stays_unknown() -> None:
    frame = pd.DataFrame({"ev_keys": [["queue_ms"], [], ["queue_ms", "other"]], "ev_values": [[5.0], [], [7.0, 1.0]]})
    spread = slow_load.spread_evidence(frame)
    assert spread["ev_queue_ms"].tolist()[::2] == [5.0, 7.0]
    assert np.isnan(spread["ev_queue_ms"].iloc[1])
    assert spread["ev_kv_usage"].isna().all()
