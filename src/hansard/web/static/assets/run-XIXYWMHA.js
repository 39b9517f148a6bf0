import{b as r}from"./chunk-DIBLS52M.js";import{m18 as e}from"./core-JI6UM5VO.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
