package proxy

import (
	"cmp"
	"errors"
	"fmt"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/identity"
)

// settings maps options of Envoy to the user's settings that they come from.
var settings = map[string]string{
	"Node.ID":      "variables POD_NAME, POD_NAMESPACE, INSTANCE_IP and --domain",
	"Node.Cluster": "serviceCluster",
	"Extra":        "variable ISTIO_BOOTSTRAP_OVERRIDE",
}

// certificateSettings maps options of the keeper to the user's settings that they come from.
var certificateSettings = map[string]string{
	"Dir":       "--work-dir",
	"OutputDir": "variable OUTPUT_CERTS",
	"Identity":  "variables POD_NAMESPACE, SERVICE_ACCOUNT, TRUST_DOMAIN",
}

// named replaces the names of options in an error with the names of the user's settings.
func named(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range list.Unwrap() {
			out = append(out, named(e))
		}
		return errors.Join(out...)
	}
	var field *envoy.FieldError
	if errors.As(err, &field) {
		return fmt.Errorf("%s: %s; %s", cmp.Or(settings[field.Field], field.Field), field.Problem, field.Want)
	}
	var option *identity.OptionError
	if errors.As(err, &option) {
		return fmt.Errorf("%s: %s", cmp.Or(certificateSettings[option.Option], option.Option), option.Problem)
	}
	return err
}
