//! The texts of all files of `machines/`.

/// Each file's name and its text. A test holds that no file of the directory is missing.
pub(crate) const MACHINE_FILES: &[(&str, &str)] = &[
    ("benchmark-unixbench.toml", include_str!("../machines/benchmark-unixbench.toml")),
    ("core-to-core-latency.toml", include_str!("../machines/core-to-core-latency.toml")),
    ("kylin-lmbench.toml", include_str!("../machines/kylin-lmbench.toml")),
    ("linux-lists.toml", include_str!("../machines/linux-lists.toml")),
    ("linux-tips.toml", include_str!("../machines/linux-tips.toml")),
    ("sbc-bench.toml", include_str!("../machines/sbc-bench.toml")),
    ("sbc-benchmarks.toml", include_str!("../machines/sbc-benchmarks.toml")),
    ("sc-inspector-data.toml", include_str!("../machines/sc-inspector-data.toml")),
    ("server-unix-bench.toml", include_str!("../machines/server-unix-bench.toml")),
    ("syscall-benchmark.toml", include_str!("../machines/syscall-benchmark.toml")),
    ("unixbench-results.toml", include_str!("../machines/unixbench-results.toml")),
];
