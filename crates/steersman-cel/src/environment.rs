//! The declarations of expressions, and their compilation.

use crate::checking::check;
use crate::checking::decl::DeclType;
use crate::checking::declarations::{COMPOSED, Declarations};
use crate::checking::types::Type;
use crate::cost::estimate;
use crate::error::CompileError;
use crate::evaluation::plan::{self, Fault};
use crate::program::Program;
use crate::syntax::parser;

/// The variables, types and functions of expressions: those of Kubernetes 1.36, and declared variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(Declarations);

impl Environment {
    /// An environment with functions and types, and no variable.
    pub fn new() -> Environment {
        Environment::default()
    }

    /// Adds a variable, which may have a dotted name.
    #[must_use]
    pub fn declare(mut self, name: &str, decl: DeclType) -> Environment {
        self.0.variables.retain(|(known, _)| **known != *name);
        self.0.variables.push((name.into(), decl));
        self
    }

    /// Adds `authorizer` and `authorizer.requestResource`.
    #[must_use]
    pub fn with_authorizer(self) -> Environment {
        use crate::evaluation::functions::{AUTHORIZER, RESOURCE_CHECK};
        self.declare("authorizer", DeclType::of(Type::opaque(AUTHORIZER)))
            .declare("authorizer.requestResource", DeclType::of(Type::opaque(RESOURCE_CHECK)))
    }

    /// Adds `variables`, whose fields are earlier expressions: their names and types.
    #[must_use]
    pub fn with_composed<'t>(self, fields: impl IntoIterator<Item = (&'t str, &'t Type)>) -> Environment {
        let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), DeclType::of(of.clone())));
        let object = DeclType::object_of("kubernetes.variables", fields);
        self.declare(COMPOSED, object)
    }

    /// Adds `Object`, `Object.spec` and so on, and `JSONPatch`, for mutations.
    #[must_use]
    pub fn with_object_types(mut self) -> Environment {
        self.0.has_objects = true;
        self
    }

    /// Adds the macro `cel.bind(name, value, body)`.
    #[must_use]
    pub fn with_bind(mut self) -> Environment {
        self.0.has_bind = true;
        self
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// With the positions and messages of the errors, in upstream's words.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let ast = parser::parse(text).map_err(|issue| CompileError::new(text, vec![issue]))?;
        let checked = check::check(&ast, &self.0).map_err(|issues| CompileError::new(text, issues))?;
        let cost = estimate::estimate(&ast, &checked, &self.0);
        let plan = plan::plan(&ast, &checked, &self.0).map_err(|fault| match fault {
            Fault::Expression(issue) => CompileError::new(text, vec![issue]),
            Fault::Instantiation(error) => CompileError::of_instantiation(&error),
        })?;
        let output = checked.type_of(ast.root).clone();
        Ok(Program { plan, cost, output })
    }
}
