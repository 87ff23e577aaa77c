//! What answers with files tell caches: a value of `Cache-Control`, for all of them or by the ending of a name.

use std::collections::HashSet;
use std::str::FromStr;

/// Values by the endings of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRules(Vec<CacheRule>);

/// A value, for names with an ending or for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// In lower case, with its dot; empty for all names.
    ending: String,
    value: String,
}

impl CacheRules {
    /// These.
    ///
    /// # Errors
    /// Two for the same names.
    pub fn new(mut rules: Vec<CacheRule>) -> Result<Self, String> {
        let mut endings = HashSet::new();
        if let Some(twice) = rules.iter().find(|rule| !endings.insert(rule.ending.as_str())) {
            let names = if twice.ending.is_empty() { "all names" } else { &twice.ending };
            return Err(format!("give one value for {names}"));
        }
        // The longest ending that a name has is the one that means it.
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.ending.len()));
        Ok(Self(rules))
    }

    /// The value for a file of this name, if there is one.
    pub(crate) fn value(&self, name: &[u8]) -> Option<&str> {
        let has_ending = |ending: &[u8]| {
            name.len() >= ending.len() && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
        };
        self.0.iter().find(|rule| has_ending(rule.ending.as_bytes())).map(|rule| rule.value.as_str())
    }
}

/// What a directive has behind an equals sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    Nothing,
    Seconds,
    /// Names of header fields in quotation marks, or nothing.
    OptionalFields,
}

/// The directives of answers (RFC 9111, section 5.2.2; RFC 5861; RFC 8246).
const DIRECTIVES: [(&str, Argument); 13] = [
    ("max-age", Argument::Seconds),
    ("s-maxage", Argument::Seconds),
    ("stale-while-revalidate", Argument::Seconds),
    ("stale-if-error", Argument::Seconds),
    ("public", Argument::Nothing),
    ("private", Argument::OptionalFields),
    ("no-cache", Argument::OptionalFields),
    ("no-store", Argument::Nothing),
    ("no-transform", Argument::Nothing),
    ("must-revalidate", Argument::Nothing),
    ("proxy-revalidate", Argument::Nothing),
    ("must-understand", Argument::Nothing),
    ("immutable", Argument::Nothing),
];

impl FromStr for CacheRule {
    type Err = String;

    /// `[.ENDING:]VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (ending, value) = match text.split_once(':').filter(|_| text.starts_with('.')) {
            Some((ending, value)) => (ending, value.trim()),
            None => ("", text.trim()),
        };
        if ending.contains('/') || ending == "." {
            return Err("give an ending such as .css before the colon".into());
        }
        let mut names = HashSet::new();
        for directive in value.split(',').map(str::trim) {
            let name = check_directive(directive)?;
            if !names.insert(name) {
                return Err(format!("{name} stands there twice"));
            }
        }
        Ok(Self { ending: ending.to_ascii_lowercase(), value: value.to_owned() })
    }
}

/// The name of a directive that may stand in an answer.
fn check_directive(directive: &str) -> Result<&'static str, String> {
    let (name, argument) = directive.split_once('=').map_or((directive, None), |(name, value)| (name, Some(value)));
    let Some((name, expected)) = DIRECTIVES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        let names = DIRECTIVES.map(|(name, _)| name).join(", ");
        return Err(format!("'{name}' is no directive of an answer, such as {names}"));
    };
    let is_right = match (expected, argument) {
        (Argument::Nothing | Argument::OptionalFields, None) => true,
        // More than 2^31 means the same (RFC 9111, section 1.2.2).
        (Argument::Seconds, Some(seconds)) => {
            (1..=10).contains(&seconds.len()) && seconds.bytes().all(|byte| byte.is_ascii_digit())
        }
        (Argument::OptionalFields, Some(fields)) => {
            let name = fields.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            name.is_some_and(|name| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            })
        }
        _ => false,
    };
    let example = match expected {
        Argument::Nothing => "",
        Argument::Seconds => "=SECONDS",
        Argument::OptionalFields => " or with the name of a field, =\"set-cookie\"",
    };
    is_right.then_some(name).ok_or_else(|| format!("'{directive}' must be {name}{example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Result<CacheRules, String> {
        CacheRules::new(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
    }

    #[test]
    fn longest_ending_decides() {
        let rules = rules(&["no-cache", ".gz:max-age=60", ".TAR.gz: max-age=3600, Immutable"]).unwrap();
        for (name, value) in [
            ("a.tar.gz", "max-age=3600, Immutable"),
            ("A.TAR.GZ", "max-age=3600, Immutable"),
            ("a.gz", "max-age=60"),
            (".gz", "max-age=60"),
            ("gz", "no-cache"),
            ("a.gz.html", "no-cache"),
        ] {
            assert_eq!(rules.value(name.as_bytes()), Some(value), "{name}");
        }
        assert_eq!(CacheRules::default().value(b"a"), None);
    }

    #[test]
    fn every_directive_is_taken_with_its_argument() {
        for (name, argument) in DIRECTIVES {
            let texts = match argument {
                Argument::Nothing => [name.to_owned(), name.to_uppercase()],
                Argument::Seconds => [format!("{name}=0"), format!("{name}=2147483648")],
                Argument::OptionalFields => [name.to_owned(), format!("{name}=\"set-cookie\"")],
            };
            texts.iter().for_each(|text| assert!(rules(&[text]).is_ok(), "{text}"));
        }
    }

    #[test]
    fn wrong_value_is_named() {
        for (texts, expected) in [
            (&["maxage=60"][..], "'maxage' is no directive of an answer, such as max-age, "),
            (&[""], "'' is no directive"),
            (&["public,"], "'' is no directive"),
            (&["max-age"], "'max-age' must be max-age=SECONDS"),
            (&["max-age=1h"], "'max-age=1h' must be max-age=SECONDS"),
            (&["max-age=\"1\""], "must be max-age=SECONDS"),
            (&["max-age=-1"], "must be max-age=SECONDS"),
            (&["no-store=1"], "'no-store=1' must be no-store"),
            (&["private=\"a\r\nb\""], "must be private or with the name of a field"),
            (&["public\r\nX: y"], "is no directive"),
            (&["max-age=1, MAX-AGE=2"], "max-age stands there twice"),
            (&[".:public"], "give an ending such as .css"),
            (&["./a:public"], "give an ending such as .css"),
            (&["public", "private"], "give one value for all names"),
            (&[".css:public", ".CSS:private"], "give one value for .css"),
        ] {
            let error = rules(texts).unwrap_err();
            assert!(error.contains(expected), "{texts:?}: {error}");
        }
    }
}
