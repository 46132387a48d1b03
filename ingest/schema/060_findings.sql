-- What the analyzers concluded. `Body` is the finding as JSON (docs/findings.md); the columns beside it are for SQL.
CREATE TABLE IF NOT EXISTS findings
(
    RunAt DateTime64(3),
    WindowFrom DateTime64(3),
    WindowTo DateTime64(3),
    Key String,
    Kind LowCardinality(String),
    Cause LowCardinality(String),
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Severity LowCardinality(String),
    LostSeconds Float64,
    LostLow Float64,
    LostHigh Float64,
    Requests UInt64,
    Users UInt64,
    Title String,
    Body String CODEC(ZSTD(3))
)
ENGINE = ReplacingMergeTree(RunAt)
ORDER BY (WindowTo, WindowFrom, Key);

-- One row a run of the analyzers, so that "no findings" differs from "never looked".
CREATE TABLE IF NOT EXISTS analyzer_runs
(
    RunAt DateTime64(3),
    WindowFrom DateTime64(3),
    WindowTo DateTime64(3),
    Analyzer LowCardinality(String),
    Findings UInt32,
    RowsRead UInt64,
    Seconds Float64,
    Note String
)
ENGINE = MergeTree
ORDER BY (RunAt, Analyzer);

-- What the newest run of the slow analyzer learnt: rates of work by stage and tool (ms a call, a prompt token, an output token, a kB,
-- a row, an item), so that one trace can be judged without fitting anything again.
CREATE TABLE IF NOT EXISTS stage_expectations
(
    RunAt DateTime64(3),
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Tool LowCardinality(String),
    Source LowCardinality(String),
    Rates Array(Float64),
    UsualFactor Float64,
    Spread Float64,
    NeedTokens Float64,
    NeedTokensPerItem Float64
)
ENGINE = ReplacingMergeTree(RunAt)
ORDER BY (ServiceName, Stage, Tool);
