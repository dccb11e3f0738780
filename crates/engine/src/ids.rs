//! Typed indices, so that a layer is never used where an expert is meant.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a slice.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A token of the vocabulary.
    TokenId
);
id!(
    /// A decoder layer, counted from 0.
    LayerId
);
id!(
    /// A routed expert of a layer.
    ExpertId
);
id!(
    /// A retained expert slot of a layer.
    SlotId
);
