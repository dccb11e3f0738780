//! An address of the page for another process of the same person, which was started a second time and finds the first at work.
//!
//! It opens once, like the one that is printed; then there is another. Where it is kept so that only this person can read it is the business of
//! whoever hands in [`Spare::tell`].

use std::sync::{Mutex, PoisonError};

use super::door::{is_same, secret};

/// Hears the token that opens next; nothing where the system gives no more random numbers.
pub type Tell = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// A token that is replaced when it was used.
pub struct Spare {
    token: Mutex<Option<String>>,
    tell: Tell,
}

impl Spare {
    /// A first token, which is told before this returns.
    pub fn new(tell: Tell) -> Result<Spare, getrandom::Error> {
        let token = secret()?;
        tell(Some(&token));
        Ok(Spare {
            token: Mutex::new(Some(token)),
            tell,
        })
    }

    /// Whether this is the token; then the next one is told before anybody comes in, one after the other.
    pub fn takes(&self, given: &str) -> bool {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let opens = token.as_ref().is_some_and(|token| is_same(given, token));
        if opens {
            *token = secret().ok();
            (self.tell)(token.as_deref());
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_token_opens_once_and_is_followed_by_another() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = told.clone();
        let tell = move |token: Option<&str>| {
            telling.lock().unwrap().push(token.unwrap().to_owned());
        };
        let spare = Spare::new(Box::new(tell)).unwrap();
        let last = || told.lock().unwrap().last().unwrap().clone();
        assert!(!spare.takes(""));
        let first = last();
        assert!(spare.takes(&first));
        assert!(!spare.takes(&first));
        assert_ne!(first, last());
        assert!(spare.takes(&last()));
        assert_eq!(told.lock().unwrap().len(), 3);
    }
}
