//! What people say of a run: tags, which are a name and a value, and a note.

use std::fmt;
use std::str::FromStr;

use kelvin_core::Labels;
use kelvin_core::identifiers::ID_GRAMMAR;

use crate::Store;
use crate::check::{CheckResult, invalid_field};
use crate::error::{DatabaseError, FindError, LabelError};
use crate::recorder::existing_key;
use crate::sql::{SqlConnection, SqlResult, SqlRow, values};

/// What stands before a tag where a run is named.
pub const TAG_PREFIX: &str = "tag:";

/// Maximum bytes of the value of a tag: a name of a branch or a version, no text.
const MAX_TAG_VALUE_BYTES: usize = 128;

/// Maximum characters of a note: a sentence or two.
pub const MAX_NOTE_CHARS: usize = 1000;

/// A tag of a run, `kernel=6.18`: a run has at most one value of each name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    name: String,
    value: String,
}

impl Tag {
    /// Its name: `kernel`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value: `6.18`.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The tag that a name of runs such as `tag:kernel=6.18` means; `None` for any other name.
    ///
    /// # Errors
    /// If what follows `tag:` is no tag.
    pub fn parse_selector(name: &str) -> Result<Option<Self>, FindError> {
        let tag = name.strip_prefix(TAG_PREFIX).map(str::parse).transpose();
        tag.map_err(|problem| FindError::BadTag(name.to_owned(), problem))
    }
}

/// What a tag must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// No name, no sign or no value.
    #[error("a tag is NAME=VALUE, such as kernel=6.18")]
    Parts,
    /// The name.
    #[error("the name of a tag is {}", ID_GRAMMAR.words)]
    Name,
    /// The value.
    #[error(
        "the value of a tag is letters, digits and any of '._-+:/@', at most {MAX_TAG_VALUE_BYTES} bytes, without two dots side by side"
    )]
    Value,
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let (name, value) = text.split_once('=').ok_or(TagError::Parts)?;
        let name = checked_tag_name(name)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:/@".contains(&byte);
        // Two dots stand between the ends of a range of runs.
        let is_value =
            (1..=MAX_TAG_VALUE_BYTES).contains(&value.len()) && value.bytes().all(allowed) && !value.contains("..");
        match is_value {
            true => Ok(Self { name, value: value.to_owned() }),
            false if value.is_empty() => Err(TagError::Parts),
            false => Err(TagError::Value),
        }
    }
}

/// The name of a tag.
///
/// # Errors
/// If it is none.
pub fn checked_tag_name(name: &str) -> Result<String, TagError> {
    match ID_GRAMMAR.allows(name) {
        true => Ok(name.to_owned()),
        false if name.is_empty() => Err(TagError::Parts),
        false => Err(TagError::Name),
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.value)
    }
}

/// Of these tags, the last of each name, and this note.
pub fn labels(tags: &[Tag], note: Option<&str>) -> Labels {
    let tags = tags.iter().map(|tag| (tag.name.clone(), tag.value.clone())).collect();
    Labels { tags, note: note.map(str::to_owned) }
}

/// Checks labels that somebody else wrote.
pub(crate) fn check_labels(labels: &Labels) -> CheckResult {
    for (name, value) in &labels.tags {
        let tag = format!("{name}={value}").parse::<Tag>();
        if let Err(problem) = tag.and_then(|tag| if tag.name == *name { Ok(()) } else { Err(TagError::Name) }) {
            return invalid_field("tags", format!("{:?}: {problem}", format!("{name}={value}")));
        }
    }
    match labels.note.as_deref().map(checked_note) {
        Some(Err(problem)) => invalid_field("note", problem),
        _ => Ok(()),
    }
}

/// What becomes of labels that a run has already, where others are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OldLabels {
    /// A tag is replaced by one with its name, a note by another.
    Replaced,
    /// They stay as they are.
    Kept,
}

/// Stores labels of a run.
pub(crate) fn put_labels(labels: &Labels, engine: &dyn SqlConnection, run: i64, old: OldLabels) -> SqlResult<()> {
    let (tag, note) = match old {
        OldLabels::Replaced => (
            "ON CONFLICT (run, name) DO UPDATE SET value = excluded.value",
            "ON CONFLICT (run) DO UPDATE SET text = excluded.text",
        ),
        OldLabels::Kept => ("ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING"),
    };
    let mut tags = labels.tags.iter().map(|(name, value)| values![run, name, value].to_vec());
    engine.execute_each(&format!("INSERT INTO tag (run, name, value) VALUES ($1, $2, $3) {tag}"), &mut tags)?;
    let note = format!("INSERT INTO note (run, text) VALUES ($1, $2) {note}");
    labels.note.iter().try_for_each(|text| engine.execute(&note, values![run, text]).map(drop))
}

/// The labels of a run.
pub(crate) fn labels_of(store: &Store, run: i64) -> Result<Labels, DatabaseError> {
    let pair = |row: &mut SqlRow| Ok((row.take(0)?, row.take(1)?));
    let tags = store.rows("SELECT name, value FROM tag WHERE run = $1", values![run], pair)?;
    let note = store.rows("SELECT text FROM note WHERE run = $1", values![run], |row| row.take(0))?.pop();
    Ok(Labels { tags: tags.into_iter().collect(), note })
}

/// A note as it is stored.
///
/// # Errors
/// If it is too long, in words.
pub fn checked_note(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0..=MAX_NOTE_CHARS => Ok(text.to_owned()),
        length => Err(format!("a note may have {MAX_NOTE_CHARS} characters, and this one has {length}")),
    }
}

impl Store {
    /// Gives the run that a name means tags, and takes those with these names from it, all or nothing; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, a tag to be removed is not there, or the store fails.
    pub fn update_tags(&self, name: &str, tags: &[Tag], removed: &[String]) -> Result<String, LabelError> {
        let id = self.find(name)?;
        let missing = self.in_label_transaction(&id, |engine, run| {
            let mut rows = engine.query("SELECT name FROM tag WHERE run = $1", values![run])?;
            let names: Vec<String> = rows.iter_mut().filter_map(|row| row.take(0).ok()).collect();
            if let Some(missing) = removed.iter().find(|name| !names.contains(name)) {
                return Ok(Some(missing.clone()));
            }
            let mut parameters = removed.iter().map(|name| values![run, name].to_vec());
            engine.execute_each("DELETE FROM tag WHERE run = $1 AND name = $2", &mut parameters)?;
            put_labels(&labels(tags, None), engine, run, OldLabels::Replaced).map(|()| None)
        })?;
        missing.map_or(Ok(id.clone()), |name| Err(LabelError::NoSuchTag(id, name)))
    }

    /// Gives the run that a name means a note in place of the one that it has, or, if it is empty, takes that away; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the store fails.
    pub fn set_note(&self, name: &str, text: &str) -> Result<String, LabelError> {
        let id = self.find(name)?;
        self.in_label_transaction(&id, |engine, run| match text {
            "" => engine.execute("DELETE FROM note WHERE run = $1", values![run]).map(drop),
            text => put_labels(&labels(&[], Some(text)), engine, run, OldLabels::Replaced),
        })?;
        Ok(id)
    }

    /// One transaction on the labels of the run with this id.
    fn in_label_transaction<T>(
        &self,
        id: &str,
        work: impl FnOnce(&dyn SqlConnection, i64) -> SqlResult<T>,
    ) -> Result<T, FindError> {
        self.in_transaction(|engine| work(engine, existing_key(engine, id)?)).map_err(|error| match error {
            DatabaseError::Orphan(_) => FindError::None(id.to_owned()),
            error => error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_name_and_value() {
        let tag: Tag = "kernel=6.18.0-rc1+".parse().unwrap();
        assert_eq!(
            (tag.name(), tag.value(), tag.to_string().as_str()),
            ("kernel", "6.18.0-rc1+", "kernel=6.18.0-rc1+")
        );
        for right in ["a=b", "branch=feature/x", "by=me@host", "at=12:30", "disk.model=wd_sn-850"] {
            assert_eq!(right.parse::<Tag>().unwrap().to_string(), right);
        }
        for (wrong, why) in [
            ("", TagError::Parts),
            ("kernel", TagError::Parts),
            ("=x", TagError::Parts),
            ("kernel=", TagError::Parts),
            ("Kernel=1", TagError::Name),
            ("a b=1", TagError::Name),
            ("a=1 2", TagError::Value),
            ("a=1..2", TagError::Value),
            ("a=b=c", TagError::Value),
            ("a=\u{1b}[2J", TagError::Value),
            ("a=ü", TagError::Value),
        ] {
            assert_eq!(wrong.parse::<Tag>(), Err(why), "{wrong:?}");
        }
        assert!(format!("a={}", "x".repeat(MAX_TAG_VALUE_BYTES)).parse::<Tag>().is_ok());
        assert!(format!("a={}", "x".repeat(MAX_TAG_VALUE_BYTES + 1)).parse::<Tag>().is_err());
        assert_eq!(Tag::parse_selector("tag:a=b").unwrap().unwrap().to_string(), "a=b");
        assert!(Tag::parse_selector("last").unwrap().is_none() && Tag::parse_selector("tag:last").is_err());
    }

    #[test]
    fn overlong_note_is_rejected() {
        let longest = "ü".repeat(MAX_NOTE_CHARS);
        assert_eq!(checked_note(&longest), Ok(longest.clone()));
        assert!(checked_note(&format!("{longest}.")).unwrap_err().contains("1000 characters"));
    }
}
