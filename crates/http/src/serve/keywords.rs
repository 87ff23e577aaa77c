//! Choices by the words for them.

/// The choice that a word stands for.
///
/// # Errors
/// What would be right.
pub fn parse_keyword<T: Copy>(all: &[(&'static str, T)], word: &str) -> Result<T, String> {
    let words = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|(known, _)| *known == word);
    found.map(|(_, choice)| *choice).ok_or_else(|| format!("it must be one of {}", words()))
}
