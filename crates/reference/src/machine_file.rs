//! A file of machines as it is written, though as JSON, read strictly: an unknown key is an error.

use std::collections::BTreeSet;

use kelvin_core::Name;
use serde::Deserialize;

use crate::machine::{LibraryMachine, PublishedSource, SourceMethod};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    source: PublishedSource,
    #[serde(default)]
    method: Vec<SourceMethod>,
    machine: Vec<LibraryMachine>,
}

/// The machines of a file.
///
/// # Errors
///
/// A sentence that states what is wrong: text that is no JSON of this form, a method that the file does not define or defines twice, or
/// that no row uses.
pub(crate) fn parse_machines(text: &str) -> Result<Vec<LibraryMachine>, String> {
    let MachineFile { source, method: methods, mut machine } =
        kelvin_core::json::from_str(text).map_err(|error| error.to_string())?;
    let mut ids = BTreeSet::new();
    if let Some(duplicate) = methods.iter().find(|method| !ids.insert(method.id)) {
        return Err(format!("the method {} is defined twice", duplicate.id));
    }
    let used: BTreeSet<Name> = machine.iter().flat_map(|machine| &machine.rows).map(|row| row.method.id).collect();
    if let Some(unused) = ids.difference(&used).next() {
        return Err(format!("no row uses the method {unused}"));
    }
    for machine in &mut machine {
        machine.source = source.clone();
        for row in &mut machine.rows {
            let method = methods.iter().find(|method| method.id == row.method.id);
            let undefined_method = || format!("{}: the method {} is not defined", machine.id, row.method.id);
            row.method = method.ok_or_else(undefined_method)?.clone();
        }
    }
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn parse(text: &str) -> Result<Vec<LibraryMachine>, String> {
        let value: toml::Value = toml::from_str(text).unwrap();
        parse_machines(&serde_json::to_string(&value).unwrap())
    }

    #[test]
    fn unknown_key_or_bad_value_is_error() {
        let machines = parse(VALID_FILE).unwrap();
        assert_eq!(
            (machines.len(), machines[0].rows[0].value, machines[0].rows[0].case.to_string().as_str()),
            (1, 1e-7, "call=gettid")
        );
        let cases = [
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
        for (from, to, message) in cases {
            let error = parse(&VALID_FILE.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(message), "{to}: {error}");
        }
    }
}
