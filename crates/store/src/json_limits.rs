//! JSON of any shape in which no text is longer than a text of a run may be, or has a NUL.

use std::fmt;

use kelvin_core::identifiers::MAX_TEXT_CHARS;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Reads any JSON, keeps nothing of it, and refuses a text, or the name of a field, that is too long or has a NUL.
pub(crate) struct LimitedJson;

impl<'de> Deserialize<'de> for LimitedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitedJson)
    }
}

impl<'de> Visitor<'de> for LimitedJson {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self, E> {
        // PostgreSQL cannot store it.
        if text.contains('\0') {
            return Err(E::custom("a text with a NUL (\\u0000), which not every store can hold"));
        }
        // No text has more characters than bytes.
        match text.len() > MAX_TEXT_CHARS && text.chars().count() > MAX_TEXT_CHARS {
            true => Err(E::custom(format!("a text of {} bytes; it may have {MAX_TEXT_CHARS} characters", text.len()))),
            false => Ok(self),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<LimitedJson>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<LimitedJson, LimitedJson>()?.is_some() {}
        Ok(self)
    }
}
