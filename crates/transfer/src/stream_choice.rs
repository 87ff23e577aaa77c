//! Which number of streams was found to be fastest, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of streams that was compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamChoice {
    /// So many.
    pub streams: u32,
    /// Their rate, in thousandths of that of one.
    pub thousandths: u64,
    /// So many were not faster, if more were tried.
    pub no_faster: Option<u32>,
}

impl StreamChoice {
    /// How many times the rate of one stream theirs was.
    pub fn speedup(&self) -> f64 {
        self.thousandths as f64 / 1e3
    }
}

/// Why this number.
impl fmt::Display for StreamChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.streams > 1 {
            write!(out, "{:.1} times the rate of one", self.speedup())?;
        }
        match self.no_faster {
            Some(more) if self.streams > 1 => write!(out, ", {more} no faster"),
            Some(more) => write!(out, "{more} were no faster"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_shows_speedup_and_next_candidate() {
        let why = |streams, thousandths, no_faster| StreamChoice { streams, thousandths, no_faster }.to_string();
        assert_eq!(why(1, 1000, Some(2)), "2 were no faster");
        assert_eq!(why(4, 3120, Some(8)), "3.1 times the rate of one, 8 no faster");
        assert_eq!(why(8, 7900, None), "7.9 times the rate of one");
    }
}
