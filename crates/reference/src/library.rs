//! All machines.

use std::sync::LazyLock;

use kelvin_model::Name;

use crate::files::FILES;
use crate::machine::Machine;
use crate::rows::machines;

/// A set of machines: those that are built in, or these and a user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Library {
    machines: Vec<Machine>,
}

static BUILT_IN: LazyLock<Library> = LazyLock::new(|| {
    let of_file = |(name, text): &(&str, &str)| match machines(text) {
        Ok(machines) => machines,
        Err(error) => panic!("the built-in file {name} is wrong: {error}"),
    };
    Library::new(FILES.iter().flat_map(of_file).collect())
});

/// The machines that are built in, source by source.
pub fn library() -> &'static Library {
    &BUILT_IN
}

impl Library {
    /// A library of these machines.
    pub const fn new(machines: Vec<Machine>) -> Self {
        Self { machines }
    }

    /// All machines.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// The machine of a name.
    pub fn find(&self, id: Name) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.id == id)
    }

    /// The same with machines of a user's own.
    #[must_use]
    pub fn with(&self, own: impl IntoIterator<Item = Machine>) -> Self {
        Self::new(self.machines.iter().cloned().chain(own).collect())
    }

    /// The same without one machine, as where that is judged by the others.
    #[must_use]
    pub fn without(&self, id: Name) -> Self {
        Self::new(self.machines.iter().filter(|machine| machine.id != id).cloned().collect())
    }
}
