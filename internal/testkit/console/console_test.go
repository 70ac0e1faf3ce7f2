package console

import "testing"

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"delete_user", `a"b\`}, `rabbit_auth_backend_internal:delete_user(<<"a\"b\\"/utf8>>, <<"tests"/utf8>>)`},
		{[]string{"set_permissions", "-p", "v", "u", "a", "b", "c"}, `rabbit_auth_backend_internal:set_permissions(<<"u"/utf8>>, <<"v"/utf8>>, <<"a"/utf8>>, <<"b"/utf8>>, <<"c"/utf8>>, <<"tests"/utf8>>)`},
		{[]string{"set_vm_memory_high_watermark", "0.6"}, "vm_memory_monitor:set_vm_memory_high_watermark(0.6)"},
		{[]string{"stop_app"}, "rabbit:stop()"},
	} {
		if got, err := Command("/", c.args...); err != nil || got != c.want {
			t.Errorf("%q is %q, %v", c.args, got, err)
		}
	}
	if _, err := Command("/", "reset"); err == nil {
		t.Error("an unknown command is not an error")
	}
}
