//! Which of the right words a mistyped one may have meant.

/// The word nearest to a mistyped one, in upper or lower case, if it is near: within one mistake, and one more for every four letters. Two
/// letters that changed places are one mistake (Damerau-Levenshtein distance).
pub fn similar_word<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (word, max_distance) = (word.to_lowercase(), 1 + word.len() / 4);
    let distances = words.into_iter().map(|other| (strsim::damerau_levenshtein(&word, other), other));
    // A word of which nothing is left is not meant.
    let is_near = |&(distance, other): &(usize, &str)| distance <= max_distance && distance < other.len().max(2);
    distances.filter(is_near).min().map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["run", "runs", "report", "receive", "budget", "users"];
        for (word, expected) in [
            ("rnu", Some("run")),
            ("RUN", Some("run")),
            ("rusn", Some("run")),
            ("reprot", Some("report")),
            ("bugdet", Some("budget")),
            ("buget", Some("budget")),
            ("user", Some("users")),
            ("frobnicate", None),
            ("x", None),
            ("", None),
            ("measure", None),
        ] {
            assert_eq!(similar_word(word, words), expected, "{word}");
        }
        assert_eq!(similar_word("run", []), None);
    }
}
