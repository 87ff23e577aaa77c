//! Files by their numbers, that are added in order, and mostly removed in it.

use std::collections::VecDeque;

use crate::message::EntryNumber;

/// Something for each of some files, in the order of their numbers: the first one is found at once, and no other one moves when it
/// is removed.
#[derive(Debug)]
pub(super) struct NumberedMap<T>(VecDeque<(EntryNumber, T)>);

impl<T> Default for NumberedMap<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> NumberedMap<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds that of a file whose number is higher than all others.
    pub(super) fn push(&mut self, number: EntryNumber, one: T) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < number));
        self.0.push_back((number, one));
    }

    pub(super) fn get_mut(&mut self, number: EntryNumber) -> Option<&mut T> {
        let place = self.index_of(number)?;
        self.0.get_mut(place).map(|(_, one)| one)
    }

    pub(super) fn remove(&mut self, number: EntryNumber) -> Option<T> {
        let place = self.index_of(number)?;
        self.0.remove(place).map(|(_, one)| one)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, one)| one)
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.0.into_iter().map(|(_, one)| one)
    }

    fn index_of(&self, number: EntryNumber) -> Option<usize> {
        match self.0.front() {
            Some((first, _)) if *first == number => Some(0),
            _ => self.0.binary_search_by_key(&number, |(own, _)| *own).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_entries_are_found_once() {
        let mut all = NumberedMap::default();
        // Numbers in between are those of files that nobody wants.
        for number in [3, 4, 7, 8, 20] {
            all.push(number, number * 10);
        }
        *all.get_mut(8).unwrap() += 1;
        assert_eq!((all.remove(7), all.remove(7), all.remove(5)), (Some(70), None, None));
        assert_eq!((all.remove(3), all.remove(3), all.remove(0), all.remove(21)), (Some(30), None, None, None));
        assert!(all.get_mut(3).is_none() && all.len() == 3);
        all.push(21, 0);
        assert_eq!(all.values().copied().collect::<Vec<_>>(), [40, 81, 200, 0]);
        assert_eq!((all.remove(20), all.into_values().collect::<Vec<_>>()), (Some(200), vec![40, 81, 0]));
    }
}
