//! Options whose value is one of a few words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word of an option, what it stands for, and its help. One without help is not listed.
pub type Word<T> = (&'static str, T, &'static str);

/// A parser of these words.
///
/// # Panics
/// Never: clap lets through only what is among them.
pub fn one_of<T: Clone + Send + Sync>(words: &'static [Word<T>]) -> impl TypedValueParser<Value = T> {
    let values = words.iter().map(|(word, _, help)| PossibleValue::new(*word).help(*help).hide(help.is_empty()));
    PossibleValuesParser::new(values).map(|choice: String| {
        let (_, value, _) = words.iter().find(|(word, ..)| *word == choice).expect("a word of the option");
        value.clone()
    })
}
