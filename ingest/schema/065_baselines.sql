-- Named stretches of time (and, if given, one version in them) to compare with later.
CREATE TABLE IF NOT EXISTS baselines
(
    Name String,
    WindowFrom DateTime64(3),
    WindowTo DateTime64(3),
    Version String,
    Note String,
    SavedAt DateTime64(3),
    IsDeleted UInt8 DEFAULT 0
)
ENGINE = ReplacingMergeTree(SavedAt, IsDeleted)
ORDER BY Name;
