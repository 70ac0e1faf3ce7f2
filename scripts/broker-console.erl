%% Evaluated inside the node at boot: a console on a loopback port, so that a question to the broker does not boot an Erlang
%% machine of its own, as rabbitmqctl does. A client sends the node's cookie first, then expressions; each frame has four bytes
%% of length before it. The answer is "ok " or "error ", then what `rabbitmqctl eval` would print.
spawn(fun() ->
  {ok, Cookie} = file:read_file(os:getenv("HOME") ++ "/.erlang.cookie"),
  Port = list_to_integer(os:getenv("SIDECAR_CONSOLE_PORT")),
  Evaluate = fun(Text) ->
    try
      {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
      {ok, Expressions} = erl_parse:parse_exprs(Tokens),
      {value, Value, _} = erl_eval:exprs(Expressions, erl_eval:new_bindings()),
      case io_lib:printable_unicode_list(Value) andalso Value =/= [] orelse is_binary(Value) of
        true -> ["ok ", unicode:characters_to_binary(Value)];
        false -> ["ok ", unicode:characters_to_binary(io_lib:format("~0tp", [Value]))]
      end
    catch Class:Reason -> ["error ", unicode:characters_to_binary(io_lib:format("~0tp", [{Class, Reason}]))]
    end
  end,
  Serve = fun Serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
      {ok, Text} -> ok = gen_tcp:send(Socket, Evaluate(Text)), Serve(Socket);
      {error, _} -> gen_tcp:close(Socket)
    end
  end,
  Greet = fun(Socket) ->
    case gen_tcp:recv(Socket, 0, 10000) of
      {ok, Cookie} -> Serve(Socket);
      _ -> gen_tcp:close(Socket)
    end
  end,
  {ok, Listener} = gen_tcp:listen(Port, [binary, {ip, {127, 0, 0, 1}}, {packet, 4}, {active, false}, {reuseaddr, true}, {backlog, 64}]),
  Accept = fun Accept() ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> receive yours -> Greet(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! yours,
    Accept()
  end,
  Accept()
end).

%% RabbitMQ before 4.3 has one supervisor, with one restart allowed in five seconds, for the workers of all quorum queues that
%% dead-letter at least once. A worker of a queue that was deleted right after its declaration cannot be restarted, so the
%% supervisor ends, and nothing starts it again: no such queue of the node works any more. Here a failed worker is not restarted; a
%% queue starts a new one when it gets a leader. From 4.3 on only a worker that failed is restarted, up to a hundred times a second.
spawn(fun() ->
  Once = fun Once() ->
    case whereis(rabbit_fifo_dlx_sup) of
      undefined -> timer:sleep(100), Once();
      Supervisor -> Supervisor
    end
  end,
  sys:replace_state(Once(), fun(State) ->
    {Ids, Children} = element(4, State),
    Spare = fun(_, Child) when element(5, Child) =:= permanent -> setelement(5, Child, temporary); (_, Child) -> Child end,
    setelement(4, State, {Ids, maps:map(Spare, Children)})
  end)
end).
