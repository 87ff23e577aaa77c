//! Which part of a load each of several hosts, and on it each of several threads, has. Pure: all parts together are the load of one.

use std::fmt;
use std::str::FromStr;

/// Most parts that a load is divided into over hosts.
const MAX_HOSTS: u32 = 10_000;

/// One part: of what is numbered from 0 on, its own number and every `parts`-th after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadShare {
    number: u32,
    parts: u32,
}

impl LoadShare {
    /// All of it.
    pub const WHOLE: Self = Self { number: 0, parts: 1 };

    /// The parts that this one is divided into, at least one.
    pub fn divide(self, parts: u32) -> impl Iterator<Item = Self> {
        (0..parts).map(move |part| Self { number: self.number + self.parts * part, parts: self.parts * parts })
    }

    /// The number of the part, from 0 on.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many parts there are.
    pub fn parts(self) -> u32 {
        self.parts
    }

    /// How many of `total` are in this part.
    pub fn count_of(self, total: u32) -> u32 {
        total / self.parts + u32::from(self.number < total % self.parts)
    }

    /// The items of this part, in their order.
    pub fn select<I: Iterator>(self, items: I) -> impl Iterator<Item = I::Item> {
        items.skip(self.number as usize).step_by(self.parts as usize)
    }
}

impl Default for LoadShare {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// As people count: from 1 on.
impl fmt::Display for LoadShare {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.number + 1, self.parts)
    }
}

impl FromStr for LoadShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.split_once('/').and_then(|(number, parts)| Some((number.parse().ok()?, parts.parse().ok()?)));
        let is_share = |&(number, parts): &(u32, u32)| (1..=parts).contains(&number) && parts <= MAX_HOSTS;
        let (number, parts) = share.filter(is_share).ok_or_else(|| {
            format!("it must be the number of a host and how many there are, such as 2/4, at most {MAX_HOSTS}")
        })?;
        Ok(Self { number: number - 1, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every item is in one of these parts, which differ in size by one at most.
    fn assert_partition(shares: &[LoadShare], total: u32) {
        let parts: Vec<Vec<u32>> = shares.iter().map(|share| share.select(0..total).collect()).collect();
        let counts: Vec<u32> = shares.iter().map(|share| share.count_of(total)).collect();
        assert_eq!(counts, parts.iter().map(|part| part.len() as u32).collect::<Vec<_>>());
        assert!(parts.iter().all(|part| part.is_sorted()));
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        let mut union = parts.concat();
        union.sort_unstable();
        assert_eq!(union, (0..total).collect::<Vec<_>>(), "{total} over {shares:?}");
    }

    #[test]
    fn every_item_is_in_one_part() {
        for parts in 1..=5 {
            for total in 0..=12 {
                assert_partition(&LoadShare::WHOLE.divide(parts).collect::<Vec<_>>(), total);
            }
        }
        assert_eq!(LoadShare::WHOLE.select(0..3).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn threads_of_hosts_divide_the_whole() {
        for (hosts, threads) in [(2, 3), (4, 1), (3, 2)] {
            let threads_of = |host: LoadShare| host.divide(threads).collect::<Vec<_>>();
            let shares: Vec<LoadShare> = LoadShare::WHOLE.divide(hosts).flat_map(threads_of).collect();
            for total in 0..=20 {
                assert_partition(&shares, total);
            }
        }
    }

    #[test]
    fn share_of_host_is_numbered_from_one() {
        let share: LoadShare = "2/4".parse().unwrap();
        assert_eq!((share.number(), share.parts(), share.to_string().as_str()), (1, 4, "2/4"));
        for text in ["", "2", "0/4", "5/4", "1/0", "1/10001", "-1/4", "1/4/5", "a/b", "4294967296/1"] {
            assert!(text.parse::<LoadShare>().is_err(), "{text}");
        }
    }
}
