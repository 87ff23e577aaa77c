//! The version of this program: how it was built, and which formats and protocols it knows.

use std::sync::LazyLock;

use kelvin_core::BuildInfo;
use kelvin_sys::c_library;

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How this program was built. The build script gives what the compiler does not know.
pub fn build_info() -> BuildInfo {
    let features = [
        ("parquet", cfg!(feature = "parquet")),
        ("postgres", cfg!(feature = "postgres")),
        ("tls", cfg!(feature = "tls")),
    ];
    BuildInfo {
        commit: Some(env!("KELVIN_BUILD_COMMIT")).filter(|commit| !commit.is_empty()).map(str::to_owned),
        target: env!("KELVIN_BUILD_TARGET").into(),
        c_library: format!("{}, {}", c_library::name(), c_library::LINKAGE),
        compiler: env!("KELVIN_BUILD_COMPILER").into(),
        features: features.iter().filter(|(_, is_compiled)| *is_compiled).map(|(name, _)| (*name).into()).collect(),
    }
}

/// Formats of files and JSON with the version that this program writes.
const FORMATS: [(&str, u32); 9] = [
    ("run", kelvin_core::RUN_FORMAT),
    ("report", kelvin_report::json::FORMAT),
    ("why", kelvin_core::EXPLANATION_FORMAT),
    ("compare", kelvin_core::COMPARE_FORMAT),
    ("time", kelvin_core::TIME_FORMAT),
    ("history", kelvin_core::HISTORY_FORMAT),
    ("fleet", kelvin_fleet::FLEET_FORMAT),
    ("load", kelvin_http::load::document::LOAD_FORMAT),
    ("load merge", kelvin_http::load::merge::MERGE_FORMAT),
];

/// What two kelvins, or kelvin and its kernel module, speak with each other.
const PROTOCOLS: [(&str, u32); 3] = [
    ("transfer", kelvin_transfer::PROTOCOL.version),
    ("agent", kelvin_transfer::wire::message::PROTOCOL.version),
    ("kernel module", kelvin_sys::kmod::VERSION),
];

/// The version as `--version` prints it: the first line is that of `-V`.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| version_text(&build_info()));
    &TEXT
}

fn version_text(build: &BuildInfo) -> String {
    let list = |versions: &[(&str, u32)]| {
        let parts: Vec<String> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        parts.join(", ")
    };
    let commit = build.commit.as_deref().unwrap_or("not known: not built from a checkout by a release build");
    let features = if build.features.is_empty() { "none".into() } else { build.features.join(", ") };
    [
        VERSION.to_owned(),
        format!("commit:    {commit}"),
        format!("target:    {}", build.target),
        format!("C library: {}", build.c_library),
        format!("compiler:  {}", build.compiler),
        format!("features:  {features}"),
        format!("formats:   {}, store {}", list(&FORMATS), kelvin_store::SCHEMA_VERSION),
        format!("protocols: {}", list(&PROTOCOLS)),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_text_has_commit_and_features_or_says_none() {
        let mut build = BuildInfo {
            commit: Some("0123456789ab-dirty".into()),
            target: "aarch64-unknown-linux-musl".into(),
            c_library: "musl, linked statically".into(),
            compiler: "rustc 1.95.0".into(),
            features: vec!["parquet".into(), "tls".into()],
        };
        let text = version_text(&build);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..6],
            [
                VERSION,
                "commit:    0123456789ab-dirty",
                "target:    aarch64-unknown-linux-musl",
                "C library: musl, linked statically",
                "compiler:  rustc 1.95.0",
                "features:  parquet, tls",
            ]
        );
        assert!(lines[6].starts_with("formats:   run 1, report 2, ") && lines[6].ends_with(", store 2"), "{text}");
        assert!(lines[7].starts_with("protocols: transfer "), "{text}");
        build.commit = None;
        build.features.clear();
        let text = version_text(&build);
        assert!(text.contains("\ncommit:    not known") && text.contains("\nfeatures:  none\n"), "{text}");
    }
}
