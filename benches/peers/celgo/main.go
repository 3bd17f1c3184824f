// The rules of a definition as kube-apiserver evaluates them: compiled by apiextensions-apiserver's validator, which is built on
// cel-go, and evaluated on one object. Prints the time of the fastest of many batches, as an object of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// The input of both programs.
type work struct {
	Schema apiextensionsv1.JSONSchemaProps
	Object map[string]any
	Rules  []string
	Count  int
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("want the file with the rules")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var work work
	if err := json.Unmarshal(text, &work); err != nil {
		log.Fatal(err)
	}
	structural, err := structural(&work)
	if err != nil {
		log.Fatal(err)
	}
	object := whole(work.Object).(map[string]any)
	compile := func() *cel.Validator {
		return cel.NewValidator(structural, false, celconfig.PerCallLimit)
	}
	validator := compile()
	evaluate := func() {
		faults, _ := validator.Validate(context.Background(), field.NewPath("root"), structural, object, nil, math.MaxInt64)
		if len(faults) > 0 {
			log.Fatal(faults.ToAggregate())
		}
	}
	figures := map[string]float64{
		"evaluate_us": fastest(evaluate),
		"compile_us":  fastest(func() { compile() }),
	}
	line, err := json.Marshal(figures)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// The schema with its rules, repeated in turn up to the wanted number.
func structural(work *work) (*schema.Structural, error) {
	for at := range work.Count {
		rule := apiextensionsv1.ValidationRule{Rule: work.Rules[at%len(work.Rules)]}
		work.Schema.XValidations = append(work.Schema.XValidations, rule)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&work.Schema, &internal, nil); err != nil {
		return nil, err
	}
	return schema.NewStructural(&internal)
}

// The value in the form in which the server decodes it: numbers without a fraction are int64.
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
		if value == math.Trunc(value) {
			return int64(value)
		}
	}
	return value
}

// Microseconds of one run, in the fastest of the batches that fill a second.
func fastest(run func()) float64 {
	const runs = 10
	best := math.Inf(1)
	for begun := time.Now(); time.Since(begun) < time.Second; {
		start := time.Now()
		for range runs {
			run()
		}
		best = min(best, float64(time.Since(start).Nanoseconds())/runs/1e3)
	}
	return best
}
