//! Puts all mutants of a list into the sources at once, each behind a switch of its own (../switch).
//!
//!     mutant_rewrite FROM TO <LIST
//!
//! LIST is what `cargo mutants --list --json` prints, each with a `number`. The files that it names are read below FROM and
//! written below TO. Prints one line for each mutant: its number, its file, and where its branch is in the new file (the
//! first byte and the one after the last), or `-` if it is in no function, or of a kind that is not known here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use proc_macro2::{LineColumn, Span};
use serde_json::Value;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ExprBinary, ExprMatch, ExprStruct, ExprUnary, Pat, Signature};

struct Mutant {
    number: u64,
    genre: String,
    replacement: String,
    begin: usize,
    end: usize,
}

/// What becomes of a part of the source.
enum Edit {
    /// `left op right`
    Binary {
        left: Range<usize>,
        right: Range<usize>,
    },
    /// `op operand`
    Unary { operand: Range<usize> },
    /// The first statement of a body: the mutants return before it.
    Body,
    /// The condition of a match guard.
    Guard,
    /// The pattern of a match arm without a guard.
    Pattern,
    /// The value of a field, which could come from the base of its struct literal.
    Field { before: String, from_base: String },
}

struct Place {
    range: Range<usize>,
    edit: Edit,
    mutants: Vec<usize>,
    /// Whether it is in a constant function.
    constant: bool,
}

impl Place {
    /// What asks whether this mutant is on.
    fn switch(&self, number: u64) -> String {
        let on = if self.constant { "on_const" } else { "on" };
        format!("::mutant_switch::{on}({number})")
    }
}

struct Finder<'a> {
    source: &'a str,
    lines: &'a [usize],
    mutants: &'a [Mutant],
    places: Vec<Place>,
    constant: bool,
    in_function: bool,
}

fn offset(source: &str, lines: &[usize], line: usize, characters: usize) -> usize {
    let start = lines[line - 1];
    source[start..]
        .char_indices()
        .nth(characters)
        .map_or(source.len(), |(at, _)| start + at)
}

impl Finder<'_> {
    fn at(&self, position: LineColumn) -> usize {
        offset(self.source, self.lines, position.line, position.column)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.at(span.start())..self.at(span.end())
    }

    fn add(&mut self, genre: &str, begin: usize, range: Range<usize>, edit: Edit) {
        let of = |(_, mutant): &(usize, &Mutant)| mutant.genre == genre && mutant.begin == begin;
        let mutants: Vec<_> = self
            .mutants
            .iter()
            .enumerate()
            .filter(of)
            .map(|(index, _)| index)
            .collect();
        if self.in_function && !mutants.is_empty() {
            self.places.push(Place {
                range,
                edit,
                mutants,
                constant: self.constant,
            });
        }
    }

    fn function(
        &mut self,
        signature: &Signature,
        first: Option<usize>,
        inside: impl FnOnce(&mut Self),
    ) {
        let outside = (self.in_function, self.constant);
        (self.in_function, self.constant) = (true, signature.constness.is_some());
        if let Some(first) = first {
            self.add("FnValue", first, first..first, Edit::Body);
        }
        inside(self);
        (self.in_function, self.constant) = outside;
    }

    fn first(&self, block: &syn::Block) -> Option<usize> {
        Some(self.at(block.stmts.first()?.span().start()))
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let first = self.first(&item.block);
        self.function(&item.sig, first, |finder| {
            visit::visit_item_fn(finder, item)
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let first = self.first(&item.block);
        self.function(&item.sig, first, |finder| {
            visit::visit_impl_item_fn(finder, item)
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let first = item.default.as_ref().and_then(|block| self.first(block));
        self.function(&item.sig, first, |finder| {
            visit::visit_trait_item_fn(finder, item)
        });
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let outside = std::mem::take(&mut self.in_function);
        visit::visit_item_const(self, item);
        self.in_function = outside;
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let (left, right) = (
            self.range(binary.left.span()),
            self.range(binary.right.span()),
        );
        let begin = self.at(binary.op.span().start());
        self.add(
            "BinaryOperator",
            begin,
            left.start..right.end,
            Edit::Binary { left, right },
        );
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let (range, operand) = (self.range(unary.span()), self.range(unary.expr.span()));
        self.add("UnaryOperator", range.start, range, Edit::Unary { operand });
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, whole: &'ast ExprMatch) {
        // Without an arm for all that is left, nothing can be without one of the others.
        let complete = whole
            .arms
            .iter()
            .any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        for arm in &whole.arms {
            if let Some((_, guard)) = &arm.guard {
                let range = self.range(guard.span());
                self.add("MatchArmGuard", range.start, range, Edit::Guard);
            } else if complete {
                let begin = self.at(arm.span().start());
                let end = self.range(arm.pat.span()).end;
                self.add("MatchArm", begin, end..end, Edit::Pattern);
            }
        }
        visit::visit_expr_match(self, whole);
    }

    fn visit_expr_struct(&mut self, literal: &'ast ExprStruct) {
        if let Some(base) = &literal.rest {
            let (kind, base) = (self.range(literal.path.span()), self.range(base.span()));
            for field in &literal.fields {
                let begin = self.at(field.span().start());
                let name = &self.source[self.range(field.member.span())];
                let from_base = format!(
                    "let base: {} = {}; base.{name}",
                    &self.source[kind.clone()],
                    &self.source[base.clone()]
                );
                let before = if field.colon_token.is_some() {
                    String::new()
                } else {
                    format!("{name}: ")
                };
                self.add(
                    "StructField",
                    begin,
                    self.range(field.expr.span()),
                    Edit::Field { before, from_base },
                );
            }
        }
        visit::visit_expr_struct(self, literal);
    }
}

struct Writer<'a> {
    source: &'a str,
    mutants: &'a [Mutant],
    places: &'a [Place],
    text: String,
    branches: BTreeMap<u64, Range<usize>>,
}

impl Writer<'_> {
    /// Writes this part of the source with the places that are in it, of which the outermost come first in `places`.
    fn part(&mut self, range: Range<usize>, mut place: usize) {
        let mut at = range.start;
        while let Some(next) = self.places.get(place) {
            if next.range.start < at {
                place += 1;
            } else if next.range.end > range.end {
                break;
            } else {
                self.text.push_str(&self.source[at..next.range.start]);
                self.place(place);
                at = next.range.end;
                place += 1;
            }
        }
        self.text.push_str(&self.source[at..range.end]);
    }

    fn place(&mut self, index: usize) {
        let places = self.places;
        let (place, source) = (&places[index], self.source);
        match &place.edit {
            Edit::Body => self.branches(place, " ", |new| format!("return {new};")),
            Edit::Pattern => {
                let number = self.mutants[place.mutants[0]].number;
                let begin = self.text.len();
                let _ = write!(self.text, " if !{}", place.switch(number));
                self.branches.insert(number, begin..self.text.len());
            }
            Edit::Binary { left, right } => {
                let [first, second] = [left, right].map(|side| &source[side.clone()]);
                self.text.push('(');
                self.branches(place, " else ", |new| format!("({first}) {new} ({second})"));
                // In parentheses, since a block at this place would be a statement.
                self.text.push_str("{ (");
                self.part(left.clone(), index + 1);
                self.text.push_str(")");
                self.text.push_str(&source[left.end..right.start]);
                self.part(right.clone(), index + 1);
                self.text.push_str(" })");
            }
            Edit::Unary { operand } => {
                self.text.push('(');
                self.branches(place, " else ", |_| source[operand.clone()].to_owned());
                self.text.push_str("{ ");
                self.text
                    .push_str(&source[place.range.start..operand.start]);
                self.part(operand.clone(), index + 1);
                self.text.push_str(" })");
            }
            Edit::Field { before, from_base } => {
                self.text.push_str(before);
                self.branches(place, " else { ", |_| from_base.clone());
                self.part(place.range.clone(), index + 1);
                self.text.push_str(" }");
            }
            Edit::Guard => {
                self.text.push('(');
                self.branches(place, " else ", str::to_owned);
                self.text.push_str("{ ");
                self.part(place.range.clone(), index + 1);
                self.text.push_str(" })");
            }
        }
    }

    /// A branch for each mutant of this place, and `then` behind it. `mutated`: from the replacement to what it runs.
    fn branches(&mut self, place: &Place, then: &str, mutated: impl Fn(&str) -> String) {
        for &mutant in &place.mutants {
            let Mutant {
                number,
                replacement,
                ..
            } = &self.mutants[mutant];
            let begin = self.text.len();
            let _ = write!(
                self.text,
                "if {} {{ {} }}",
                place.switch(*number),
                mutated(replacement)
            );
            self.branches.insert(*number, begin..self.text.len());
            self.text.push_str(then);
        }
    }
}

fn rewrite(
    source: &str,
    mutants: &[Mutant],
    lines: &[usize],
) -> (String, BTreeMap<u64, Range<usize>>) {
    let file = syn::parse_file(source).expect("a source that compiles");
    let mut finder = Finder {
        source,
        lines,
        mutants,
        places: Vec::new(),
        constant: false,
        in_function: false,
    };
    finder.visit_file(&file);
    let mut places = finder.places;
    // Of two that begin at one byte, the longer one is outside. Nothing is inside of an empty range.
    places.sort_by_key(|place| {
        (
            place.range.start,
            !place.range.is_empty(),
            usize::MAX - place.range.end,
        )
    });
    let mut writer = Writer {
        source,
        mutants,
        places: &places,
        text: String::new(),
        branches: BTreeMap::new(),
    };
    writer.part(0..source.len(), 0);
    (writer.text, writer.branches)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else {
        panic!("mutant_rewrite FROM TO <LIST")
    };
    let list: Vec<Value> = serde_json::from_reader(std::io::stdin()).expect("a list of mutants");
    let mut files: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for mutant in &list {
        files
            .entry(mutant["file"].as_str().expect("a file"))
            .or_default()
            .push(mutant);
    }
    for (name, values) in files {
        let source = fs::read_to_string(Path::new(from).join(name)).expect("a source");
        let lines: Vec<usize> = std::iter::once(0)
            .chain(source.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let number = |value: &Value| value.as_u64().expect("a number") as usize;
        let place = |value: &Value| {
            offset(
                &source,
                &lines,
                number(&value["line"]),
                number(&value["column"]) - 1,
            )
        };
        let mutants: Vec<Mutant> = values
            .iter()
            .map(|value| Mutant {
                number: number(&value["number"]) as u64,
                genre: value["genre"].as_str().expect("a genre").to_owned(),
                replacement: value["replacement"]
                    .as_str()
                    .expect("a replacement")
                    .to_owned(),
                begin: place(&value["span"]["start"]),
                end: place(&value["span"]["end"]),
            })
            .collect();
        let (text, branches) = rewrite(&source, &mutants, &lines);
        let new = Path::new(to).join(name);
        if fs::read_to_string(&new).ok().as_deref() != Some(text.as_str()) {
            fs::create_dir_all(new.parent().expect("a folder")).expect("making the folder");
            fs::write(new, text).expect("writing the new source");
        }
        for Mutant {
            number, begin, end, ..
        } in &mutants
        {
            match branches.get(number) {
                Some(branch) => println!("{number} {name} {} {}", branch.start, branch.end),
                None => println!("{number} {name} - ({begin} to {end})"),
            }
        }
    }
}
