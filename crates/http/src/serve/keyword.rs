//! Words of the command line that stand for a choice.

/// The choice that a word stands for.
///
/// # Errors
/// What would be right.
pub(crate) fn parse_keyword<T: Copy>(names: &[(&'static str, T)], word: &str) -> std::result::Result<T, String> {
    let words = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let choice = names.iter().find(|(name, _)| *name == word);
    choice.map(|(_, choice)| *choice).ok_or_else(|| format!("it must be one of {}", words()))
}
