//! Where in which file each rank's blocks are.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How the data of ranks lies in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Each rank has a file of its own.
    Own,
    /// All ranks share a file, of which each has one contiguous segment.
    Segmented,
    /// All ranks share a file, in which their blocks alternate.
    Strided,
}

impl Layout {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Own, Self::Segmented, Self::Strided];

    /// As people write it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Own => "own files",
            Self::Segmented => "shared file, segmented",
            Self::Strided => "shared file, strided",
        }
    }
}

/// What one of several ranks writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// How the parts lie in files.
    pub layout: Layout,
    /// The rank that writes it.
    pub writer: usize,
    /// Its place among all parts.
    pub position: usize,
    /// How many parts there are.
    pub parts: usize,
    /// Blocks of it.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: usize,
}

impl Part {
    /// The file that it is in.
    pub fn path(&self, directory: &Path) -> PathBuf {
        match self.layout {
            Layout::Own => directory.join(format!("data.{}", self.writer)),
            Layout::Segmented | Layout::Strided => directory.join("data"),
        }
    }

    /// Where in that file a block of it begins, in bytes.
    pub fn offset(&self, block: u64) -> u64 {
        let position = self.position as u64;
        let number = match self.layout {
            Layout::Own => block,
            Layout::Segmented => position * self.blocks + block,
            Layout::Strided => block * self.parts as u64 + position,
        };
        number * self.block_bytes as u64
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_block_of_every_file_is_written_once() {
        for layout in Layout::ALL {
            for parts in 1..=7_usize {
                for blocks in 1..=9 {
                    let block_bytes = 512 * parts;
                    let mut files: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
                    for position in 0..parts {
                        let part = Part { layout, writer: 10 + position, position, parts, blocks, block_bytes };
                        let offsets = files.entry(part.path(Path::new("d"))).or_default();
                        offsets.extend((0..blocks).map(|block| part.offset(block)));
                    }
                    let is_shared = layout != Layout::Own;
                    assert_eq!(files.len(), if is_shared { 1 } else { parts });
                    for offsets in files.values_mut() {
                        offsets.sort_unstable();
                        let count = if is_shared { parts as u64 * blocks } else { blocks };
                        let expected: Vec<u64> = (0..count).map(|number| number * block_bytes as u64).collect();
                        assert_eq!(*offsets, expected, "{layout:?}, {parts} parts of {blocks} blocks");
                    }
                }
            }
        }
    }

    #[test]
    fn segments_are_contiguous_and_strides_alternate() {
        let part = |layout| Part { layout, writer: 1, position: 1, parts: 3, blocks: 4, block_bytes: 10 };
        let offsets = |layout| (0..3).map(|block| part(layout).offset(block)).collect::<Vec<u64>>();
        assert_eq!(offsets(Layout::Own), [0, 10, 20]);
        assert_eq!(offsets(Layout::Segmented), [40, 50, 60]);
        assert_eq!(offsets(Layout::Strided), [10, 40, 70]);
        assert_eq!(part(Layout::Own).bytes(), 40);
    }
}
