//! Choices by the words for them.

/// The choice that a word stands for.
///
/// # Errors
/// What would be right.
pub fn parse_keyword<T: Copy>(all: &[(&'static str, T)], word: &str) -> Result<T, String> {
    let found = all.iter().find(|(known, _)| *known == word);
    let known = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    found.map(|(_, choice)| *choice).ok_or_else(|| format!("it must be one of {}", known()))
}

/// The word for a choice.
pub fn keyword_of<T: PartialEq>(all: &[(&'static str, T)], choice: &T) -> &'static str {
    all.iter().find(|(_, one)| one == choice).map_or("", |(word, _)| word)
}
