//! What people say of a run: tags, which are a name and a value, and a note.

use std::fmt;
use std::str::FromStr;

use kelvin_model::Labels;
use kelvin_model::grammar::ID;

use crate::Store;
use crate::check::{Checked, invalid};
use crate::engine::{Engine, Outcome, Row, Trouble, values};
use crate::error::{Fault, FindError, LabelError};
use crate::record::key_of;

/// What stands before a tag where a run is named.
pub const TAG_PREFIX: &str = "tag:";

/// Maximum bytes of the value of a tag: a name of a branch or a version, no text.
const LONGEST_VALUE: usize = 128;

/// Maximum characters of a note: a sentence or two.
pub const LONGEST_NOTE: usize = 1000;

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
    pub fn named(name: &str) -> Result<Option<Self>, FindError> {
        let tag = name.strip_prefix(TAG_PREFIX).map(str::parse).transpose();
        tag.map_err(|problem| FindError::BadTag { name: name.to_owned(), problem })
    }
}

/// What a tag must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTag {
    /// No name, no sign or no value.
    #[error("a tag is NAME=VALUE, such as kernel=6.18")]
    Parts,
    /// The name.
    #[error("the name of a tag is {}", ID.words)]
    Name,
    /// The value.
    #[error(
        "the value of a tag is letters, digits and any of '._-+:/@', at most {LONGEST_VALUE} bytes, without two dots side by side"
    )]
    Value,
}

impl FromStr for Tag {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let (name, value) = text.split_once('=').ok_or(BadTag::Parts)?;
        check_name(name)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:/@".contains(&byte);
        // Two dots stand between the ends of a range of runs.
        let is_value =
            (1..=LONGEST_VALUE).contains(&value.len()) && value.bytes().all(allowed) && !value.contains("..");
        match is_value {
            true => Ok(Self { name: name.to_owned(), value: value.to_owned() }),
            false if value.is_empty() => Err(BadTag::Parts),
            false => Err(BadTag::Value),
        }
    }
}

/// Checks the name of a tag.
///
/// # Errors
/// If it is none.
pub fn check_name(name: &str) -> Result<(), BadTag> {
    match ID.allows(name) {
        true => Ok(()),
        false if name.is_empty() => Err(BadTag::Parts),
        false => Err(BadTag::Name),
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
pub(crate) fn check(labels: &Labels) -> Checked {
    for (name, value) in &labels.tags {
        let tag = format!("{name}={value}").parse::<Tag>();
        if let Err(problem) = tag.and_then(|tag| if tag.name == *name { Ok(()) } else { Err(BadTag::Name) }) {
            return invalid("tags", format!("{:?}: {problem}", format!("{name}={value}")));
        }
    }
    match labels.note.as_deref().map(note) {
        Some(Err(problem)) => invalid("note", problem),
        _ => Ok(()),
    }
}

/// Stores labels of a run: a tag in place of one with its name, a note in place of another.
pub(crate) fn put(labels: &Labels, engine: &dyn Engine, run: i64) -> Outcome<()> {
    const TAG: &str = "INSERT INTO tag (run, name, value) VALUES ($1, $2, $3)
        ON CONFLICT (run, name) DO UPDATE SET value = excluded.value";
    let mut tags = labels.tags.iter().map(|(name, value)| values![run, name, value].to_vec());
    engine.execute_each(TAG, &mut tags)?;
    labels.note.iter().try_for_each(|note| put_note(engine, run, note))
}

/// Stores those of another store: what is there is neither replaced nor removed.
pub(crate) fn add(labels: &Labels, engine: &dyn Engine, run: i64) -> Outcome<()> {
    const TAG: &str = "INSERT INTO tag (run, name, value) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let mut tags = labels.tags.iter().map(|(name, value)| values![run, name, value].to_vec());
    engine.execute_each(TAG, &mut tags)?;
    let note = "INSERT INTO note (run, text) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    labels.note.iter().try_for_each(|text| engine.execute(note, values![run, text]).map(drop))
}

/// The labels of a run.
pub(crate) fn of(store: &Store, run: i64) -> Result<Labels, Fault> {
    let pair = |row: &mut Row| Ok((row.take(0)?, row.take(1)?));
    let tags = store.rows("SELECT name, value FROM tag WHERE run = $1", values![run], pair)?;
    let note = store.rows("SELECT text FROM note WHERE run = $1", values![run], |row| row.take(0))?.pop();
    Ok(Labels { tags: tags.into_iter().collect(), note })
}

fn put_note(engine: &dyn Engine, run: i64, text: &str) -> Outcome<()> {
    let put = "INSERT INTO note (run, text) VALUES ($1, $2) ON CONFLICT (run) DO UPDATE SET text = excluded.text";
    engine.execute(put, values![run, text]).map(drop)
}

/// A note as it is stored.
///
/// # Errors
/// If it is too long, in words.
pub fn note(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0..=LONGEST_NOTE => Ok(text.to_owned()),
        length => Err(format!("a note may have {LONGEST_NOTE} characters, and this one has {length}")),
    }
}

impl Store {
    /// Gives the run that a name means tags, and takes those with these names from it, all or nothing; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, a tag to be removed is not there, or the store fails.
    pub fn tag(&self, name: &str, tags: &[Tag], removed: &[String]) -> Result<String, LabelError> {
        let id = self.find(name)?;
        let missing = self.labelled(&id, |engine, run| {
            let mut rows = engine.query("SELECT name FROM tag WHERE run = $1", values![run])?;
            let there: Vec<String> = rows.iter_mut().filter_map(|row| row.take(0).ok()).collect();
            if let Some(missing) = removed.iter().find(|name| !there.contains(name)) {
                return Ok(Some(missing.clone()));
            }
            let mut each = removed.iter().map(|name| values![run, name].to_vec());
            engine.execute_each("DELETE FROM tag WHERE run = $1 AND name = $2", &mut each)?;
            put(&labels(tags, None), engine, run).map(|()| None)
        })?;
        missing.map_or(Ok(id.clone()), |name| Err(LabelError::NoSuchTag { id, name }))
    }

    /// Gives the run that a name means a note in place of the one that it has, or, if it is empty, takes that away; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the store fails.
    pub fn note(&self, name: &str, text: &str) -> Result<String, LabelError> {
        let id = self.find(name)?;
        self.labelled(&id, |engine, run| match text {
            "" => engine.execute("DELETE FROM note WHERE run = $1", values![run]).map(drop),
            text => put_note(engine, run, text),
        })?;
        Ok(id)
    }

    /// One transaction on the labels of the run with this id.
    fn labelled<T>(&self, id: &str, work: impl FnOnce(&dyn Engine, i64) -> Outcome<T>) -> Result<T, FindError> {
        let done = self.in_transaction(|engine| work(engine, key_of(engine, id)?.ok_or(Trouble::Orphan)?));
        done.map_err(|trouble| match trouble {
            Trouble::Orphan => FindError::None { name: id.to_owned() },
            trouble => self.fault(trouble).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_name_and_a_value() {
        let tag: Tag = "kernel=6.18.0-rc1+".parse().unwrap();
        assert_eq!(
            (tag.name(), tag.value(), tag.to_string().as_str()),
            ("kernel", "6.18.0-rc1+", "kernel=6.18.0-rc1+")
        );
        for right in ["a=b", "branch=feature/x", "by=me@host", "at=12:30", "disk.model=wd_sn-850"] {
            assert_eq!(right.parse::<Tag>().unwrap().to_string(), right);
        }
        for (wrong, why) in [
            ("", BadTag::Parts),
            ("kernel", BadTag::Parts),
            ("=x", BadTag::Parts),
            ("kernel=", BadTag::Parts),
            ("Kernel=1", BadTag::Name),
            ("a b=1", BadTag::Name),
            ("a=1 2", BadTag::Value),
            ("a=1..2", BadTag::Value),
            ("a=b=c", BadTag::Value),
            ("a=\u{1b}[2J", BadTag::Value),
            ("a=ü", BadTag::Value),
        ] {
            assert_eq!(wrong.parse::<Tag>(), Err(why), "{wrong:?}");
        }
        assert!(format!("a={}", "x".repeat(LONGEST_VALUE)).parse::<Tag>().is_ok());
        assert!(format!("a={}", "x".repeat(LONGEST_VALUE + 1)).parse::<Tag>().is_err());
        assert_eq!(Tag::named("tag:a=b").unwrap().unwrap().to_string(), "a=b");
        assert!(Tag::named("last").unwrap().is_none() && Tag::named("tag:last").is_err());
    }

    #[test]
    fn a_note_is_short() {
        let longest = "ü".repeat(LONGEST_NOTE);
        assert_eq!(note(&longest), Ok(longest.clone()));
        assert!(note(&format!("{longest}.")).unwrap_err().contains("1000 characters"));
    }
}
