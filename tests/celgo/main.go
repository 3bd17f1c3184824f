// What Kubernetes' own rules in CEL, which are built on cel-go, make of expressions: reads a schema, an object and expressions
// that give texts, and prints a line of JSON for each: whether it compiles, what it may cost, its value, and what it cost.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type work struct {
	Schema      apiextensionsv1.JSONSchemaProps
	Object      map[string]any
	Expressions []string
}

// The verdict on an expression.
type verdict struct {
	// Why it does not compile.
	Refused string `json:"refused,omitempty"`
	// What it may cost at the most.
	Estimate uint64 `json:"estimate"`
	// Its value, and why it has none.
	Value  *string `json:"value,omitempty"`
	Failed string  `json:"failed,omitempty"`
	// What the evaluation cost.
	Cost uint64 `json:"cost"`
	// cel-go has no verdict.
	Panicked bool `json:"panicked,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want the file with the expressions")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var work work
	if err := json.Unmarshal(text, &work); err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, verdict := range judge(&work) {
		line, err := json.Marshal(verdict)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintln(out, string(line))
	}
}

// As many expressions are compiled at once, which shares an environment.
const together = 64

func judge(work *work) []verdict {
	var verdicts []verdict
	for start := 0; start < len(work.Expressions); start += together {
		part := work.Expressions[start:min(start+together, len(work.Expressions))]
		judged := evaluate(work, part)
		if judged != nil {
			verdicts = append(verdicts, judged...)
			continue
		}
		for at := range part {
			judged := evaluate(work, part[at:at+1])
			if judged == nil {
				judged = []verdict{{Panicked: true}}
			}
			verdicts = append(verdicts, judged...)
		}
	}
	return verdicts
}

// The verdicts, nil if cel-go panics on one.
func evaluate(work *work, expressions []string) (verdicts []verdict) {
	defer func() {
		if recover() != nil {
			verdicts = nil
		}
	}()
	asked := work.Schema
	for _, expression := range expressions {
		rule := apiextensionsv1.ValidationRule{Rule: "true", MessageExpression: expression}
		asked.XValidations = append(asked.XValidations, rule)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&asked, &internal, nil); err != nil {
		log.Fatal(err)
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		log.Fatal(err)
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	declared := model.SchemaDeclType(structural, false)
	results, err := cel.Compile(structural, declared, celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
	if err != nil {
		log.Fatal(err)
	}
	variables := map[string]any{"self": cel.UnstructuredToVal(whole(work.Object), structural)}
	for _, result := range results {
		if result.Error != nil {
			log.Fatal(result.Error)
		}
		if result.MessageExpressionError != nil {
			verdicts = append(verdicts, verdict{Refused: result.MessageExpressionError.Detail})
			continue
		}
		verdict := verdict{Estimate: result.MessageExpressionMaxCost}
		value, details, err := result.MessageExpression.ContextEval(context.Background(), variables)
		if err != nil {
			verdict.Failed = err.Error()
		} else {
			text := fmt.Sprint(value.Value())
			verdict.Value = &text
		}
		if details != nil && details.ActualCost() != nil {
			verdict.Cost = *details.ActualCost()
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// The value as the server decodes it: numbers without a fraction are int64.
func whole(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = whole(inner)
		}
	case []any:
		for at, inner := range value {
			value[at] = whole(inner)
		}
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < 1<<63 {
			return int64(value)
		}
	}
	return value
}
