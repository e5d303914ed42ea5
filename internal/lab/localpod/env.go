package localpod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// environment returns the environment of a container's command, and the variables that $(NAME) may refer to.
// Source: pkg/kubelet/kubelet_pods.go makeEnvironmentVariables of kubernetes v1.34.4.
func (f facts) environment(c carrier) ([]string, map[string]string, error) {
	vars := map[string]string{}
	for i, from := range c.EnvFrom {
		data, err := f.envFrom(fmt.Sprintf("%s.envFrom[%d]", c.field, i), from)
		if err != nil {
			return nil, nil, err
		}
		for name, value := range data {
			vars[from.Prefix+name] = value
		}
	}
	for i, e := range c.Env {
		field := fmt.Sprintf("%s.env[%d]", c.field, i)
		if e.ValueFrom == nil {
			vars[e.Name] = expand(e.Value, vars)
			continue
		}
		value, ok, err := f.valueFrom(field+".valueFrom", c, e.ValueFrom)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			vars[e.Name] = value
		}
	}
	env := []string{}
	for name, value := range map[string]string{"PATH": defaultPath, "HOSTNAME": f.hostname()} {
		if _, own := vars[name]; !own {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	slices.Sort(env)
	return env, vars, nil
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (f facts) envFrom(field string, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		m, err := f.configMap(field+".configMapRef", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		return m.Data, err
	case from.SecretRef != nil:
		s, err := f.secret(field+".secretRef", from.SecretRef.Name, from.SecretRef.Optional)
		return texts(s), err
	}
	return nil, refuse(field, "is empty").but("want configMapRef or secretRef")
}

// valueFrom returns the value of a variable with valueFrom, or false if its source is optional and missing.
func (f facts) valueFrom(field string, c carrier, from *corev1.EnvVarSource) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		v, err := f.field(field+".fieldRef.fieldPath", from.FieldRef.FieldPath)
		return v, true, err
	case from.ResourceFieldRef != nil:
		v, err := f.resource(field+".resourceFieldRef", c, from.ResourceFieldRef)
		return v, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := f.configMap(field+".configMapKeyRef", ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return key(field+".configMapKeyRef.key", ref.Key, m.Data, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := f.secret(field+".secretKeyRef", ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return key(field+".secretKeyRef.key", ref.Key, texts(s), ref.Optional)
	}
	return "", false, refuse(field, "has no supported source").but("want fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef")
}

func key(field, name string, data map[string]string, optional *bool) (string, bool, error) {
	value, ok := data[name]
	if !ok && (optional == nil || !*optional) {
		return "", false, refuse(field, "no key %q", name).but("keys here are %s", known(data))
	}
	return value, ok, nil
}

// texts returns the data of a secret, in which stringData takes precedence.
func texts(s corev1.Secret) map[string]string {
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	maps.Copy(out, s.StringData)
	return out
}

// expand replaces $(NAME) by the value of an existing variable, and $$ by $. Source:
// third_party/forked/golang/expansion/expand.go of kubernetes v1.34.4.
func expand(s string, vars map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		rest := s[i+1:]
		switch {
		case rest[0] == '$':
			b.WriteByte('$')
			s = rest[1:]
			continue
		case rest[0] != '(':
			b.WriteByte('$')
			s = rest
			continue
		}
		name, after, closed := strings.Cut(rest[1:], ")")
		if !closed { // like Kubernetes, leave the rest unchanged
			b.WriteString("$(")
			s = rest[1:]
			continue
		}
		if value, ok := vars[name]; ok {
			b.WriteString(value)
		} else {
			b.WriteString("$(" + name + ")")
		}
		s = after
	}
}

func expandAll(words []string, vars map[string]string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = expand(w, vars)
	}
	return out
}
