//! Options of `kelvin` that a user gives after `--`, and that all ranks have.

/// Refuses options by name, each with what to do instead.
///
/// # Errors
/// One sentence about the first option that is among these.
pub fn refuse(
    options: &[String],
    refused: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Result<(), String> {
    let is_given = |name: &str| {
        // The value of a short option may follow at once.
        let is_end = |rest: &str| rest.is_empty() || rest.starts_with('=') || !name.starts_with("--");
        options.iter().any(|word| word.strip_prefix(name).is_some_and(is_end))
    };
    match refused.into_iter().find(|(name, _)| is_given(name)) {
        Some((name, reason)) => Err(format!("{name} after --: {reason}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_is_refused_with_and_without_value() {
        let refused = [("--out", "give it before --"), ("--json", "leave it out"), ("-o", "leave it out")];
        let check = |text: &str| refuse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>(), refused);
        assert_eq!(check("--outer --quick json"), Ok(()));
        for text in ["--quick --out DIR", "--out=DIR"] {
            assert_eq!(check(text), Err("--out after --: give it before --".to_owned()));
        }
        assert_eq!(check("--json"), Err("--json after --: leave it out".to_owned()));
        assert_eq!(["-o x", "-ox"].map(check), ["-o", "-o"].map(|_| Err("-o after --: leave it out".to_owned())));
    }
}
