//! A file of machines as it is written, read strictly: an unknown key is an error.

use std::collections::BTreeSet;

use kelvin_core::{Case, Name};
use serde::Deserialize;

use crate::machine::{
    LibraryMachine, MachineKind, MemoryKind, PublishedFigure, PublishedSource, SourceMethod, Virtualisation,
};
use crate::mitigation::ActiveMitigation;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    source: SourceTable,
    #[serde(default)]
    method: Vec<MethodTable>,
    machine: Vec<MachineTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceTable {
    id: Name,
    title: String,
    url: String,
    commit: Option<String>,
    read: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MethodTable {
    id: Name,
    tool: String,
    differs: String,
    factor: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineTable {
    id: Name,
    name: String,
    cpu: String,
    core: Name,
    kind: MachineKind,
    instance: Virtualisation,
    hypervisor: Option<String>,
    cpus: Option<u32>,
    memory: Option<MemoryKind>,
    channels: Option<u32>,
    kernel: Option<String>,
    base_page: Option<u64>,
    mitigations: Option<BTreeSet<ActiveMitigation>>,
    measured: Option<u16>,
    at: String,
    rows: Vec<RowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowTable {
    metric: Name,
    #[serde(default)]
    case: Case,
    value: f64,
    method: Name,
    published: Option<String>,
}

/// The machines of a file.
///
/// # Errors
///
/// A sentence that says what is wrong: text that is no TOML of this form, a method that the file does not define or defines twice, or
/// that no row uses.
pub(crate) fn parse_machines(text: &str) -> Result<Vec<LibraryMachine>, String> {
    let MachineFile { source, method, machine } = toml::from_str(text).map_err(|error| error.to_string())?;
    let SourceTable { id, title, url, commit, read } = source;
    let source = PublishedSource { id, title, url, commit, read };
    let methods: Vec<SourceMethod> = method
        .into_iter()
        .map(|MethodTable { id, tool, differs, factor }| SourceMethod { id, tool, differs, factor })
        .collect();
    let mut ids = BTreeSet::new();
    if let Some(twice) = methods.iter().find(|method| !ids.insert(method.id)) {
        return Err(format!("the method {} is defined twice", twice.id));
    }
    let used: BTreeSet<Name> = machine.iter().flat_map(|machine| &machine.rows).map(|row| row.method).collect();
    if let Some(unused) = ids.difference(&used).next() {
        return Err(format!("no row uses the method {unused}"));
    }
    machine.into_iter().map(|table| to_machine(table, &source, &methods)).collect()
}

fn to_machine(
    table: MachineTable,
    source: &PublishedSource,
    methods: &[SourceMethod],
) -> Result<LibraryMachine, String> {
    let row = |row: RowTable| {
        let method = methods.iter().find(|method| method.id == row.method);
        let method = method.ok_or_else(|| format!("{}: the method {} is not defined", table.id, row.method))?.clone();
        Ok(PublishedFigure { metric: row.metric, case: row.case, value: row.value, method, published: row.published })
    };
    let rows = table.rows.into_iter().map(row).collect::<Result<Vec<PublishedFigure>, String>>()?;
    Ok(LibraryMachine {
        id: table.id,
        name: table.name,
        cpu: table.cpu,
        core: table.core,
        kind: table.kind,
        instance: table.instance,
        hypervisor: table.hypervisor,
        cpus: table.cpus,
        memory: table.memory,
        channels: table.channels,
        kernel: table.kernel,
        base_page: table.base_page,
        mitigations: table.mitigations,
        measured: table.measured,
        source: source.clone(),
        at: table.at,
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::parse_machines;

    const VALID_FILE: &str = r#"
        [source]
        id = "here"
        title = "A source"
        url = "https://example.org"
        read = "2026-11-28"

        [[method]]
        id = "loop"
        tool = "a loop"
        differs = "Nothing."
        factor = 1.1

        [[machine]]
        id = "one"
        name = "One"
        cpu = "CPU"
        core = "Zen 4"
        kind = "server"
        instance = "guest"
        mitigations = ["safe_return"]
        at = "a.txt"
        rows = [{ metric = "os.syscall.null", case = { call = "gettid" }, value = 1.0e-7, method = "loop" }]
    "#;

    #[test]
    fn unknown_key_or_bad_value_is_error() {
        let read = parse_machines(VALID_FILE).unwrap();
        assert_eq!(
            (read.len(), read[0].rows[0].value, read[0].rows[0].case.to_string().as_str()),
            (1, 1e-7, "call=gettid")
        );
        let wrong = [
            (
                r#"at = "a.txt""#,
                r#"at = "a.txt"
        colour = "red""#,
                "unknown field `colour`",
            ),
            (r#"method = "loop" }"#, r#"method = "poll" }"#, "method"),
            (r#"kind = "server""#, r#"kind = "toaster""#, "unknown variant `toaster`"),
            ("value = 1.0e-7, ", "", "missing field `value`"),
            (r#"["safe_return"]"#, r#"["prayer"]"#, "unknown variant `prayer`"),
        ];
        for (from, to, says) in wrong {
            let error = parse_machines(&VALID_FILE.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
