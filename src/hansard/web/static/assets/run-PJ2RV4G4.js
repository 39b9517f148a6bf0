import{b as r}from"./chunk-N7CQOECD.js";import{m18 as e}from"./core-G7QYHLFX.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
