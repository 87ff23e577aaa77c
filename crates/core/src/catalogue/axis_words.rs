//! An axis of words as an enum.

/// Defines the words of an axis: `words! { /// What. pub enum Name: "axis", "label" { /// What. First = "first", } }`.
///
/// The enum has `AXIS`, `ALL` in the order of reports, `name` (the word as it is written in data), `of` (the word of a case)
/// and `point` (the axis at this word), and a case takes it: `Case::new().with_word(Name::First)`.
macro_rules! words {
    (
        $(#[$what:meta])*
        pub enum $Name:ident: $axis:literal, $label:literal {
            $($(#[$of:meta])* $Word:ident = $word:literal,)+
        }
    ) => {
        $(#[$what])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Name {
            $($(#[$of])* $Word,)+
        }

        impl $Name {
            /// The axis.
            pub const AXIS: crate::Axis =
                crate::Axis::new($axis, $label, crate::AxisScale::Category);
            /// All words, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$Word,)+];

            /// The word as it is written in data and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Word => $word,)+
                }
            }

            /// The axis at this word.
            pub const fn point(self) -> crate::AxisWord {
                crate::AxisWord::new(Self::AXIS, self.name())
            }

            /// The word of a case; `None` if it has none, or an unknown one.
            pub fn of(case: &crate::Case) -> Option<Self> {
                let word = Self::AXIS.word_in(case)?;
                Self::ALL.iter().copied().find(|variant| variant.name() == word)
            }
        }

        impl From<$Name> for crate::AxisWord {
            fn from(word: $Name) -> Self {
                word.point()
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::Case;

    words! {
        /// A side.
        pub enum Side: "side", "side of the road" {
            /// Left.
            Left = "left",
            /// Right.
            Right = "right",
        }
    }

    #[test]
    fn axis_word_round_trips_case() {
        let case = Case::new().with_word(Side::Right);
        assert_eq!(case.to_string(), "side=right");
        assert_eq!(Side::of(&case), Some(Side::Right));
        assert!(Side::Right.point().is_in_case(&case) && !Side::Left.point().is_in_case(&case));
        assert_eq!(Side::of(&Case::new()), None);
        assert_eq!(Side::of(&Case::new().with_number(Side::AXIS, 1)), None);
    }
}
