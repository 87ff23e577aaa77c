//! Options whose order among each other matters.

use clap::ArgMatches;
use kelvin_core::IndirectSort;

/// The values of several options, each with its option, in the order of the command line. An option is its id and what stands for it.
pub fn values_in_order<O: Copy, T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    options: impl IntoIterator<Item = (String, O)>,
) -> Vec<(O, T)> {
    let mut values: Vec<(usize, (O, T))> = Vec::new();
    for (id, option) in options {
        let given = matches.get_many::<T>(&id).into_iter().flatten().map(|value| (option, value.clone()));
        values.extend(matches.indices_of(&id).into_iter().flatten().zip(given));
    }
    values.indirect_sort_by_key(|(index, _)| *index);
    values.into_iter().map(|(_, value)| value).collect()
}
