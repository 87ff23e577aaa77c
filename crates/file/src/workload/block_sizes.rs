//! The sizes of blocks, and how often each is chosen.

/// As in fio.
const MAX_SIZES: usize = 64;

/// Sizes of blocks, each with its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSizes(Vec<SizeShare>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct SizeShare {
    bytes: usize,
    /// The share of this size and of all before it, 0 to 1.
    cumulative: f64,
}

impl BlockSizes {
    /// One size, of at least one byte.
    pub fn single(bytes: usize) -> Self {
        Self(vec![SizeShare { bytes: bytes.max(1), cumulative: 1.0 }])
    }

    /// Sizes with their shares, in percent of 100.
    ///
    /// # Errors
    /// No size that has a share, one of no bytes, or more than `MAX_SIZES`.
    pub fn new(shares: Vec<(usize, f64)>) -> Result<Self, String> {
        if shares.len() > MAX_SIZES {
            return Err(format!("at most {MAX_SIZES} sizes of blocks"));
        }
        let mut cumulative = 0.0;
        let mut sizes = Vec::new();
        for (bytes, percent) in shares.into_iter().filter(|&(_, percent)| percent > 0.0) {
            if bytes == 0 {
                return Err("a block has at least one byte".into());
            }
            cumulative += percent / 100.0;
            sizes.push(SizeShare { bytes, cumulative });
        }
        match sizes.last_mut() {
            Some(last) => last.cumulative = 1.0,
            None => return Err("no size of a block has a share".into()),
        }
        Ok(Self(sizes))
    }

    /// The size that belongs to a number, 0 to 1, which is drawn by chance.
    pub fn choose(&self, chance: f64) -> usize {
        self.0.iter().find(|size| chance < size.cumulative).or(self.0.last()).map_or(1, |size| size.bytes)
    }

    /// Whether there is only one.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }

    /// The largest.
    pub fn largest(&self) -> usize {
        self.0.iter().map(|size| size.bytes).max().unwrap_or(1)
    }

    /// The smallest.
    pub fn smallest(&self) -> usize {
        self.0.iter().map(|size| size.bytes).min().unwrap_or(1)
    }

    /// Each size with its share, 0 to 1.
    pub fn shares(&self) -> Vec<(usize, f64)> {
        let before = std::iter::once(0.0).chain(self.0.iter().map(|size| size.cumulative));
        self.0.iter().zip(before).map(|(size, before)| (size.bytes, size.cumulative - before)).collect()
    }

    /// Whether all are multiples of a number of bytes.
    pub fn are_multiples_of(&self, bytes: u64) -> bool {
        self.0.iter().all(|size| (size.bytes as u64).is_multiple_of(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_chosen_by_their_shares() {
        let sizes = BlockSizes::new(vec![(4096, 25.0), (512, 0.0), (8192, 75.0)]).unwrap();
        assert_eq!([0.0, 0.24, 0.25, 0.99, 1.0].map(|chance| sizes.choose(chance)), [4096, 4096, 8192, 8192, 8192]);
        assert_eq!((sizes.smallest(), sizes.largest(), sizes.is_single()), (4096, 8192, false));
        assert_eq!(sizes.shares(), [(4096, 0.25), (8192, 0.75)]);
        assert!(BlockSizes::new(vec![(4096, 0.0)]).is_err() && BlockSizes::new(vec![(0, 100.0)]).is_err());
    }
}
