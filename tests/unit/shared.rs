//! What only `src/sys/shared.rs` itself can see of its work.

use super::*;

shared_words! {
    pub struct Fields {
        word: Word,
        words: Words<3>,
        flag: Flag,
    }
}

#[test]
fn each_field_has_words_of_its_own() {
    let fields = Fields::shared().unwrap();
    assert!(fields.word.get() == 0 && !fields.flag.get());
    fields.word.set(u64::MAX);
    for word in fields.words.0 {
        assert_eq!(word.swap(7, SeqCst), 0);
    }
    assert!(!fields.flag.take());
    fields.flag.set(true);
    assert_eq!(fields.word.replace(0), u64::MAX);
    assert!(fields.words.0.iter().all(|word| word.load(SeqCst) == 7));
    assert!(fields.flag.get() && fields.flag.take() && !fields.flag.take());
}
