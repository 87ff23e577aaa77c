//! All machines.

use std::sync::LazyLock;

use kelvin_core::Name;

use crate::machine::LibraryMachine;
use crate::machine_file::parse_machines;

/// A set of machines: those that are built in, or these and a user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceLibrary {
    machines: Vec<LibraryMachine>,
}

/// All files of `machines/` as JSON, deflated, with a NUL between two of them: the build script made it.
const PACKED_FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/machines.deflate"));

static BUILT_IN_LIBRARY: LazyLock<ReferenceLibrary> = LazyLock::new(|| {
    let texts = miniz_oxide::inflate::decompress_to_vec(PACKED_FILES).expect("the build script packed the files");
    let texts = String::from_utf8(texts).expect("each file is UTF-8");
    let file_machines =
        |text| parse_machines(text).unwrap_or_else(|error| panic!("a built-in file of machines is wrong: {error}"));
    ReferenceLibrary::new(texts.split('\0').flat_map(file_machines).collect())
});

/// The machines that are built in, source by source.
pub fn built_in_library() -> &'static ReferenceLibrary {
    &BUILT_IN_LIBRARY
}

impl ReferenceLibrary {
    /// A library of these machines.
    pub const fn new(machines: Vec<LibraryMachine>) -> Self {
        Self { machines }
    }

    /// All machines.
    pub fn machines(&self) -> &[LibraryMachine] {
        &self.machines
    }

    /// The machine of a name.
    pub fn find(&self, id: Name) -> Option<&LibraryMachine> {
        self.machines.iter().find(|machine| machine.id == id)
    }

    /// This library with machines of a user's own.
    #[must_use]
    pub fn with_machines(&self, machines: impl IntoIterator<Item = LibraryMachine>) -> Self {
        Self::new(self.machines.iter().cloned().chain(machines).collect())
    }
}
